//! The settings of what is recorded of requests and streams, ready to be obeyed.

use myriad_model::{
    AccessLog, Attribute, Condition, ConditionStep, FormatPart, Literal, LogFormat, MetricAction,
    MetricRule, Relation, SpanTag, TagValue, Telemetry, TextForm,
};
use std::sync::Arc;

use super::access_log::AccessLogLine;
use crate::pattern::{BadRegex, Budget, Pattern};

/// The settings of what is recorded.
pub struct Recording {
    /// The resource as it was told.
    pub told: Telemetry,
    /// One for each access log; none leaves the log to the proxy's setting.
    logs: Option<Box<[Filter]>>,
    /// The tags of metrics that are asked for; `None` where nothing is counted.
    pub asked: Option<AskedTags>,
    /// The headers of requests that somebody wants to be told, in lower case.
    headers: Box<[Box<str>]>,
}

/// The requests that get a line.
struct Filter {
    condition: Option<Condition>,
    /// One for each step that has one.
    regexes: Box<[Arc<Pattern>]>,
}

/// Which of the access logs take a line, by their places.
pub type Takers = u8;

/// Which tags are asked for beside the standard labels, by the places of [`TagValue::BOUNDED`].
pub type AskedTags = [bool; TagValue::BOUNDED.len()];

impl Recording {
    /// Makes it ready.
    ///
    /// # Errors
    /// A regex that is not valid, or too large.
    pub fn new(told: &Telemetry) -> Result<Recording, BadRegex> {
        let logs = told.logs.as_ref().map(|logs| {
            let filters = logs.iter().map(|log| Filter::new(log.filter.as_ref()));
            filters.collect::<Result<_, _>>()
        });
        let mut headers: Vec<Box<str>> = Vec::new();
        attributes(told, &mut |attribute| {
            if let Attribute::RequestHeader(name, otherwise) = attribute {
                headers.extend(
                    [Some(name), otherwise.as_ref()]
                        .into_iter()
                        .flatten()
                        .cloned(),
                );
            }
        });
        headers.sort();
        headers.dedup();
        Ok(Recording {
            logs: logs.transpose()?,
            asked: asked(&told.metrics),
            told: told.clone(),
            headers: headers.into(),
        })
    }

    /// Whether there is an access log; none where the proxy's setting says so.
    pub fn has_logs(&self) -> Option<bool> {
        self.logs.as_ref().map(|logs| !logs.is_empty())
    }

    /// Which tags of metrics are asked for, and none where nothing is counted; `counts_all` is
    /// the proxy's setting where nothing else is said.
    pub fn asked(recording: Option<&Recording>, counts_all: bool) -> Option<AskedTags> {
        match recording {
            Some(recording) if counts_all || !recording.told.metrics.is_empty() => recording.asked,
            _ => counts_all.then(AskedTags::default),
        }
    }

    /// The headers of requests that somebody wants to be told, in lower case.
    pub fn headers(&self) -> &[Box<str>] {
        &self.headers
    }

    /// The access logs.
    pub fn logs(&self) -> &[AccessLog] {
        self.told.logs.as_deref().unwrap_or_default()
    }

    /// Which access logs take a line.
    pub fn takers(&self, line: &AccessLogLine) -> Takers {
        let filters = self.logs.as_deref().unwrap_or_default();
        let (takers, budget) = (filters.iter().enumerate(), Budget::default());
        takers
            .filter(|(_, filter)| filter.takes(line, &budget))
            .fold(0, |takers, (at, _)| takers | 1_u8.unbounded_shl(at as u32))
    }
}

/// The tags of metrics that are asked for; `None` where nothing is counted.
fn asked(rules: &[MetricRule]) -> Option<AskedTags> {
    let mut asked = AskedTags::default();
    if let [rule] = rules
        && rule.metric.is_none()
        && rule.action == MetricAction::Disable
    {
        return None;
    }
    for rule in rules {
        if let MetricAction::Set(_, TagValue::Attribute(attribute)) = &rule.action {
            let at = TagValue::BOUNDED.iter().position(|it| it == attribute);
            if let Some(asked) = at.and_then(|at| asked.get_mut(at)) {
                *asked = true;
            }
        }
    }
    Some(asked)
}

/// All attributes that are told of.
fn attributes(told: &Telemetry, visit: &mut dyn FnMut(&Attribute)) {
    let mut of_parts = |parts: &[FormatPart]| {
        for part in parts {
            if let FormatPart::Value { attribute, .. } = part {
                visit(attribute);
            }
        }
    };
    for log in told.logs.iter().flatten() {
        match &log.format {
            LogFormat::Own => {}
            LogFormat::Text(parts) => of_parts(parts),
            LogFormat::Json(members) => {
                members.iter().for_each(|(_, parts)| of_parts(parts));
            }
        }
    }
    let filters = told
        .logs
        .iter()
        .flatten()
        .filter_map(|log| log.filter.as_ref());
    for step in filters.flat_map(|filter| &filter.steps) {
        if let ConditionStep::Has(attribute)
        | ConditionStep::Compare(attribute, ..)
        | ConditionStep::Text(attribute, ..) = step
        {
            visit(attribute);
        }
    }
    for tag in told.tracing.iter().flat_map(|tracing| &tracing.tags) {
        if let SpanTag::Attribute(_, attribute, _) = tag {
            visit(attribute);
        }
    }
}

impl Filter {
    fn new(condition: Option<&Condition>) -> Result<Filter, BadRegex> {
        let steps = condition.iter().flat_map(|condition| &condition.steps);
        let regexes = steps.filter_map(|step| match step {
            ConditionStep::Text(_, TextForm::Regex, pattern) => Some(Pattern::anywhere(pattern)),
            _ => None,
        });
        Ok(Filter {
            regexes: regexes.collect::<Result<_, _>>()?,
            condition: condition.cloned(),
        })
    }

    /// Whether a line is taken; also where finding out takes more steps than there are, since
    /// nobody may hide from a log.
    fn takes(&self, line: &AccessLogLine, budget: &Budget) -> bool {
        let Some(condition) = &self.condition else {
            return true;
        };
        let mut regexes = self.regexes.iter();
        // What is neither true nor false is none.
        let mut results: smallvec::SmallVec<[Option<bool>; 8]> = smallvec::SmallVec::new();
        for step in &condition.steps {
            let result = match step {
                ConditionStep::And => {
                    let (second, first) = (results.pop().flatten(), results.pop().flatten());
                    match (first, second) {
                        (Some(false), _) | (_, Some(false)) => Some(false),
                        (Some(true), Some(true)) => Some(true),
                        _ => None,
                    }
                }
                ConditionStep::Or => {
                    let (second, first) = (results.pop().flatten(), results.pop().flatten());
                    match (first, second) {
                        (Some(true), _) | (_, Some(true)) => Some(true),
                        (Some(false), Some(false)) => Some(false),
                        _ => None,
                    }
                }
                ConditionStep::Not => results.pop().flatten().map(|result| !result),
                ConditionStep::Constant(result) => Some(*result),
                ConditionStep::Has(attribute) => Some(line.has(attribute)),
                ConditionStep::Compare(attribute, relation, literal) => {
                    compare(line, attribute, *relation, literal)
                }
                ConditionStep::Text(attribute, form, text) => {
                    let regex = match form {
                        TextForm::Regex => regexes.next(),
                        _ => None,
                    };
                    line.text(attribute).map(|known| match form {
                        TextForm::Contains => known.contains(&**text),
                        TextForm::Start => known.starts_with(&**text),
                        TextForm::End => known.ends_with(&**text),
                        TextForm::Regex => {
                            regex.is_some_and(|it| it.is_match(known.as_bytes(), budget))
                        }
                    })
                }
            };
            results.push(result);
        }
        results.pop().flatten() == Some(true) || budget.is_spent()
    }
}

fn compare(
    line: &AccessLogLine,
    attribute: &Attribute,
    relation: Relation,
    literal: &Literal,
) -> Option<bool> {
    let order = match literal {
        Literal::Number(number) => line.number(attribute)?.cmp(number),
        Literal::Flag(flag) => line.flag_of(attribute)?.cmp(flag),
        Literal::Text(text) => (*line.text(attribute)?).cmp(text),
    };
    Some(match relation {
        Relation::Equal => order.is_eq(),
        Relation::Unequal => order.is_ne(),
        Relation::Less => order.is_lt(),
        Relation::AtMost => order.is_le(),
        Relation::Greater => order.is_gt(),
        Relation::AtLeast => order.is_ge(),
    })
}

#[cfg(test)]
mod tests;
