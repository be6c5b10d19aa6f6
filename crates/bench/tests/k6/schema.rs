//! Structural schemas, as definitions of kinds have them.

use serde_json::Value;

/// The places of a value that a schema does not allow, each with what is wrong there.
pub(crate) fn violations(value: &Value, schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(value, schema, "", &mut found);
    found
}

fn check(value: &Value, schema: &Value, at: &str, found: &mut Vec<String>) {
    let says = |name: &str| schema[name] == true;
    if says("x-kubernetes-int-or-string") {
        if !value.is_string() && !value.is_i64() {
            found.push(format!("{at} is neither a number nor a string"));
        }
        return;
    }
    let is_of_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !is_of_type {
        found.push(format!("{at} is no {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        found.push(format!("{at} is none of {}", schema["enum"]));
    }
    for item in value.as_array().into_iter().flatten() {
        check(item, &schema["items"], &format!("{at}[]"), found);
    }
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if value.is_object() && value.get(name).is_none() {
            found.push(format!("{at} lacks {name}"));
        }
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        let known = schema["properties"].get(name);
        match known.or_else(|| schema.get("additionalProperties")) {
            Some(known) => check(inner, known, &at, found),
            None if says("x-kubernetes-preserve-unknown-fields") => (),
            // Of the name and labels of an object no definition tells.
            None if schema.get("properties").is_none() => (),
            None => found.push(format!("{at} is not known")),
        }
    }
}
