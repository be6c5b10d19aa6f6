use super::parse;

fn steps(text: &str) -> String {
    let parsed = parse(text).map(|condition| {
        let steps = condition.steps.iter().map(|step| format!("{step:?}"));
        steps.collect::<Vec<_>>().join("; ")
    });
    parsed.unwrap_or_else(|problem| format!("refused: {problem}"))
}

#[test]
fn what_people_write_is_understood() {
    for (text, meant) in [
        (
            "response.code >= 400",
            "Compare(Status, AtLeast, Number(400))",
        ),
        (
            "500 <= response.code",
            "Compare(Status, AtLeast, Number(500))",
        ),
        (
            "request.url_path.startsWith('/healthz')",
            "Text(Path, Start, \"/healthz\")",
        ),
        (
            "!connection.mtls",
            "Compare(IsMutual, Equal, Flag(true)); Not",
        ),
        (
            "has(request.headers['X-A']) && !(response.code == 200u || false)",
            "Has(RequestHeader(\"x-a\", None)); Compare(Status, Equal, Number(200)); \
             Constant(false); Or; Not; And",
        ),
        (
            "request.headers['user-agent'].contains(\"kube\")",
            "Text(RequestHeader(\"user-agent\", None), Contains, \"kube\")",
        ),
        (
            "request.method in ['GET', \"HEAD\"]",
            "Compare(Method, Equal, Text(\"GET\")); Compare(Method, Equal, Text(\"HEAD\")); Or",
        ),
        (
            "'x-b' in request.headers",
            "Has(RequestHeader(\"x-b\", None))",
        ),
        (
            "request.duration > duration('1.5s')",
            "Compare(Duration, Greater, Number(1500000))",
        ),
        (
            "request.duration > duration('-1m30s')",
            "Compare(Duration, Greater, Number(-90000000))",
        ),
    ] {
        assert_eq!(steps(text), meant, "{text}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (text, problem) in [
        ("", "ends where an attribute should stand"),
        (
            "response.code",
            "has an attribute that is neither true nor false",
        ),
        (
            "response.code == '200'",
            "compares values of different types",
        ),
        (
            "response.kode == 200",
            "has the attribute response.kode, which is not known here",
        ),
        ("response.code == 200 200", "has 200 where it should end"),
        ("request.path.size() > 3", "calls size, which is not known"),
        (
            "request.path.matches('(')",
            "has \"(\", which is no regex of RE2",
        ),
        ("response.code + 1 == 2", "has '+', which is not understood"),
        ("(true", "ends where ) should stand"),
        ("'a", "has a text without end"),
    ] {
        assert_eq!(steps(text), format!("refused: {problem}"), "{text}");
    }
    assert!(steps(&"!".repeat(100)).contains("16 deep"));
    assert!(steps(&["true"; 100].join(" && ")).contains("128 tests"));
    assert!(steps(&" ".repeat(5_000)).contains("4096 bytes"));
}
