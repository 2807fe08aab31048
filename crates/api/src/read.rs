//! JSON into types, telling everything that is wrong with it at once: [`model::read`], with what it says of our bodies.

pub use model::read::{from_slice, from_value, line, mismatch, nearest, unknown_field};

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::{InstanceCreate, WorkloadCreate};

    /// Exactly these lines are said of a body.
    fn check<T: DeserializeOwned>(body: &str, expect: &[&str]) {
        let error = from_slice::<T>(body.as_bytes()).err().expect("it is refused");
        let mut lines: Vec<String> = error.faults().iter().map(line).collect();
        let mut expect = expect.to_vec();
        lines.sort();
        expect.sort_unstable();
        assert_eq!(lines, expect, "of {body}");
    }

    #[test]
    fn a_wrong_body_is_told_by_field() {
        check::<InstanceCreate>("", &["name: 'name' is missing", "spec: 'spec' is missing"]);
        check::<InstanceCreate>("[]", &["this must be an object, not a list"]);
        check::<InstanceCreate>(
            r#"{"name":"A","spec":{"cpu":"lots","memroy":1,"pids":"x","restart":"sometimes","zzz":1}}"#,
            &[
                "name: 'A' is not a name: use 1 to 63 lower-case letters, digits and '-', not beginning or ending with '-'",
                "spec.cpu: 'lots' is not an amount of CPU: write cores such as 0.5 or 2, or thousandths such as 500m",
                "spec.memroy: there is no field 'memroy' here; did you mean 'memory'?",
                "spec.pids: pids must be a whole number, not a text (\"x\")",
                "spec.restart: 'sometimes' is not possible here: write never, on-failure or always",
                "spec.zzz: there is no field 'zzz' here; there are image, runtime, command, env, user, workdir, cpu, \
                 memory, disk, pids, gpu, restart, health, labels, constraints, priority and lost",
                "spec.image: 'image' is missing",
            ],
        );
        for (body, says) in [("{", "not JSON"), (r#"{"name":"a","spec":{"image":"b"}} x"#, "not JSON")] {
            let error = from_slice::<InstanceCreate>(body.as_bytes()).expect_err("refused");
            assert!(error.field.is_none() && error.message.contains(says), "{error}");
        }
        check::<InstanceCreate>(
            r#"{"name":"a","spec":{"image":"b","image":"c"}}"#,
            &["image: the field 'image' is given twice"],
        );
    }

    #[test]
    fn what_lies_deep_has_its_whole_path() {
        check::<WorkloadCreate>(
            r#"{"name":"a","spec":{"instance":{"image":1,"command":["a",2,true],"env":{"A":80},
                "health":{"probe":{"tcp":{"port":"x"}},"retries":-1},
                "constraints":{"affinity":[{"label":"a"},{"lable":"a","value":"b"}],"area":{}}},
                "mode":{"kind":"service","replicas":"3","schedule":"x"},"update":{"max_surge":[]},"autoscale":{}}}"#,
            &[
                "spec.instance.image: image must be a text, not a number (1); write \"1\"",
                "spec.instance.command[1]: command[1] must be a text, not a number (2); write \"2\"",
                "spec.instance.command[2]: command[2] must be a text, not a boolean (true); write \"true\"",
                "spec.instance.env.A: A must be a text, not a number (80); write \"80\"",
                "spec.instance.health.probe.tcp.port: port must be a whole number, not a text (\"x\")",
                "spec.instance.health.retries: retries must be a whole number, 0 to 4294967295, not a number (-1)",
                "spec.instance.constraints.affinity[0].value: 'value' is missing",
                "spec.instance.constraints.affinity[1].lable: there is no field 'lable' here; did you mean 'label'?",
                "spec.instance.constraints.affinity[1].label: 'label' is missing",
                "spec.instance.constraints.area.latitude: 'latitude' is missing",
                "spec.instance.constraints.area.longitude: 'longitude' is missing",
                "spec.instance.constraints.area.radius_km: 'radius_km' is missing",
                "spec.mode.replicas: replicas must be a whole number, not a text (\"3\")",
                "spec.mode.schedule: there is no field 'schedule' here; there are kind and replicas",
                "spec.update.max_surge: max_surge must be a number of instances such as 2, or a share such as \"25%\", \
                 not a list",
                "spec.autoscale.min: 'min' is missing",
                "spec.autoscale.max: 'max' is missing",
            ],
        );
    }

    #[test]
    fn what_can_be_read_is_checked_too() {
        let value = serde_json::json!({"image": "a", "cpu": "x", "memory": "1MiB", "pids": 0});
        let error = from_value(&value, model::InstanceSpec::validate).expect_err("wrong");
        let fields: Vec<_> = error.faults().into_iter().filter_map(|fault| fault.field).collect();
        assert_eq!(fields, ["cpu", "memory", "pids"]);
    }

    #[test]
    fn a_probe_of_no_kind_is_one_fault() {
        check::<InstanceCreate>(
            r#"{"name":"a","spec":{"image":"b","health":{"probe":{"tpc":{"port":1}}}}}"#,
            &["spec.health.probe: 'tpc' is not possible here: write command, tcp or http"],
        );
        check::<InstanceCreate>(
            r#"{"name":"a","spec":{"image":"b","health":{}}}"#,
            &["spec.health.probe: 'probe' is missing"],
        );
    }
}
