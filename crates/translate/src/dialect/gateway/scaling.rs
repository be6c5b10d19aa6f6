//! The parameters of a class that ask for an autoscaler of the proxies of each Gateway.

use myriad_api::ConfigMap;
use myriad_api::gateway::status::Scaling;

/// The keys of a ConfigMap of parameters.
const REPLICAS_MAX: &str = "myriad-gateway-replicas-max";
const REPLICAS_MIN: &str = "myriad-gateway-replicas-min";
const CPU_PERCENT: &str = "myriad-gateway-cpu-percent";

/// The most proxies that may be asked for.
const REPLICAS_LIMIT: u32 = 1_000;

/// The highest target of processor time.
const CPU_PERCENT_LIMIT: u32 = 1_000;

/// The fewest proxies, where nobody says so and so many are allowed.
const REPLICAS_MIN_DEFAULT: u32 = 2;

/// The target of processor time, where nobody says so.
const CPU_PERCENT_DEFAULT: u32 = 80;

/// The scaling that parameters ask for; none where they do not.
///
/// # Errors
/// The rest of a sentence about the parameters: what is wrong with them.
pub(super) fn read(map: &ConfigMap) -> Result<Option<Scaling>, String> {
    let replicas_max = number(map, REPLICAS_MAX, REPLICAS_LIMIT)?;
    let replicas_min = number(map, REPLICAS_MIN, REPLICAS_LIMIT)?;
    let cpu_percent = number(map, CPU_PERCENT, CPU_PERCENT_LIMIT)?;
    let Some(replicas_max) = replicas_max else {
        return match replicas_min.or(cpu_percent) {
            None => Ok(None),
            Some(_) => Err(format!("asks for an autoscaler without {REPLICAS_MAX}")),
        };
    };
    let replicas_min = replicas_min.unwrap_or(REPLICAS_MIN_DEFAULT.min(replicas_max));
    if replicas_min > replicas_max {
        return Err(format!("has a {REPLICAS_MIN} above its {REPLICAS_MAX}"));
    }
    Ok(Some(Scaling {
        replicas_min,
        replicas_max,
        cpu_percent: cpu_percent.unwrap_or(CPU_PERCENT_DEFAULT),
    }))
}

fn number(map: &ConfigMap, key: &str, limit: u32) -> Result<Option<u32>, String> {
    let mut data = map.data.iter();
    let Some((_, text)) = data.find(|(known, _)| **known == *key) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(number) if (1..=limit).contains(&number) => Ok(Some(number)),
        _ => Err(format!("has a {key} that is no number from 1 to {limit}")),
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::ConfigMap;
    use myriad_api::gateway::status::Scaling;

    use super::read;

    fn parameters(data: &str) -> ConfigMap {
        let text = format!("metadata: {{name: own, namespace: infra}}\ndata: {{{data}}}\n");
        serde_saphyr::from_str(&text).unwrap()
    }

    #[test]
    fn an_autoscaler_is_asked_for_by_the_most_proxies() {
        let scaling = |data: &str| read(&parameters(data)).unwrap();
        assert_eq!(scaling("myriad-gateway-mode: dedicated"), None);
        let of = |replicas_min, replicas_max, cpu_percent| {
            Some(Scaling {
                replicas_min,
                replicas_max,
                cpu_percent,
            })
        };
        let max = "myriad-gateway-replicas-max";
        assert_eq!(scaling(&format!("{max}: '10'")), of(2, 10, 80));
        assert_eq!(scaling(&format!("{max}: '1'")), of(1, 1, 80));
        let all = "myriad-gateway-replicas-min: '3', myriad-gateway-cpu-percent: '150'";
        assert_eq!(scaling(&format!("{max}: '1000', {all}")), of(3, 1_000, 150));
    }

    #[test]
    fn numbers_beyond_their_bounds_are_refused_and_named() {
        let max = "myriad-gateway-replicas-max: '4'";
        for (data, problem) in [
            (
                "myriad-gateway-replicas-max: '0'".to_owned(),
                "from 1 to 1000",
            ),
            (
                "myriad-gateway-replicas-max: '1001'".to_owned(),
                "from 1 to 1000",
            ),
            (
                "myriad-gateway-replicas-max: many".to_owned(),
                "from 1 to 1000",
            ),
            (
                format!("{max}, myriad-gateway-cpu-percent: '1001'"),
                "cpu-percent",
            ),
            (
                format!("{max}, myriad-gateway-cpu-percent: '-1'"),
                "cpu-percent",
            ),
            (
                format!("{max}, myriad-gateway-replicas-min: '5'"),
                "above its",
            ),
            ("myriad-gateway-replicas-min: '1'".to_owned(), "without"),
            ("myriad-gateway-cpu-percent: '50'".to_owned(), "without"),
        ] {
            let refused = read(&parameters(&data)).unwrap_err();
            assert!(refused.contains(problem), "{data}: {refused}");
        }
    }
}
