#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::default();
    let mut add = |kind, value: Value| catalogue.add(kind, value).unwrap();
    add(Kind::Provider, json!({"name": "cloud", "providertype": "ec2"}));
    add(Kind::HardwareType, json!({"name": "small", "providermap": {"cloud": {"flavor": "s1"}}}));
    add(Kind::ImageType, json!({"name": "debian", "providermap": {"cloud": {"image": "d12"}}}));
    add(Kind::Service, json!({"name": "base"}));
    add(Kind::Service, json!({"name": "web", "dependencies": {"runtime": {"requires": ["base"]}}}));
    add(
        Kind::ClusterTemplate,
        json!({"name": "good", "defaults": {"services": ["base", "web"], "provider": "cloud"},
        "constraints": {"services": {"web": {"quantities": {"min": 1}}}}}),
    );
    catalogue
}

/// Adds one entity to a good catalogue and tells what is wrong with it.
fn told(kind: Kind, value: Value) -> Vec<String> {
    let mut catalogue = catalogue();
    catalogue.add(kind, value).unwrap();
    let line = |finding: Finding| {
        format!("{:?} {} {}: {}", finding.level, finding.name, finding.path, finding.message)
    };
    check(&catalogue).into_iter().map(line).collect()
}

fn is(kind: Kind, value: Value, expect: &[&str]) {
    assert_eq!(told(kind, value), expect);
}

#[test]
fn a_good_catalogue_has_nothing_wrong() {
    assert_eq!(check(&catalogue()), []);
}

#[test]
fn sizes_without_a_layout_are_told() {
    let pairs = |size: Value| {
        json!({"name": "pairs", "defaults": {"services": ["base", "web"], "provider": "cloud"},
        "constraints": {"size": size, "layout": {"cantcoexist": [["base", "web"]]},
            "services": {"base": {"quantities": {"min": 1, "stepSize": 2}}, "web": {"quantities": {"min": 1, "max": 1}}}}})
    };
    let found = told(Kind::ClusterTemplate, pairs(json!({"min": 2, "max": 7})));
    let expect = [
        "Warning pairs constraints.size.max: its largest size is 7, but the largest of those tried that works is 6: no layout",
        "Warning pairs constraints.size: between sizes that work some have no layout (3, 5): no layout of 3 machines",
    ];
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().zip(expect).all(|(found, start)| found.starts_with(start)), "{found:?}");
    assert_eq!(told(Kind::ClusterTemplate, pairs(json!({"min": 4, "max": 4}))), Vec::<String>::new());
}

#[test]
fn all_that_is_wrong_with_what_is_included_is_told() {
    let template = json!({"name": "t", "extends": {"name": "nobody"}, "includes": [{"name": "one"}, {"name": "two"}],
                          "defaults": {"services": ["base"], "provider": "cloud"}});
    is(
        Kind::ClusterTemplate,
        template,
        &[
            "Error t extends: cluster template t extends 'nobody', which does not exist",
            "Error t includes: cluster template t includes 'one', which does not exist",
            "Error t includes: cluster template t includes 'two', which does not exist",
        ],
    );
}

#[test]
fn without_time_no_layout_is_tried_and_all_else_is_told() {
    let never = json!({"name": "never", "defaults": {"services": ["base", "web"], "provider": "cloud",
            "config": {"a": "%host.nonsense%"}},
        "constraints": {"size": {"max": 1}, "layout": {"cantcoexist": [["base", "web"]]},
            "services": {"base": {"quantities": {"min": 1}}, "web": {"quantities": {"min": 1}}}}});
    let with = |config: &str| {
        let (mut catalogue, mut template) = (catalogue(), never.clone());
        template["defaults"]["config"]["a"] = config.into();
        catalogue.add(Kind::ClusterTemplate, template).unwrap();
        catalogue
    };
    let told = |found: Vec<Finding>| -> Vec<String> { found.into_iter().map(|one| one.path).collect() };
    assert_eq!(told(check(&with("plain"))), ["constraints"]);
    assert_eq!(told(check_while(&with("plain"), &mut || false)), Vec::<String>::new());
    assert_eq!(told(check_while(&with("%host.nonsense%"), &mut || false)), ["defaults.config.a"]);
}

#[test]
fn what_will_be_missing_later_is_told_early() {
    is(
        Kind::ClusterTemplate,
        json!({"name": "t", "defaults": {"config": {"a": ["%host.service.web% %ip.service.ghost[0]% 100%"]}},
            "links": [{"label": "l", "url": "http://%host.service.gone%/"}]}),
        &[
            "Warning t defaults.config.a[0]: a macro names service 'ghost', which does not exist",
            "Warning t links[0].url: a macro names service 'gone', which does not exist",
        ],
    );
    let mut catalogue = catalogue();
    let field = json!({"label": "l", "type": "text"});
    let mut add = |kind, value: Value| catalogue.add(kind, value).unwrap();
    add(
        Kind::ProviderType,
        json!({"name": "ec2", "parameters": {"admin": {"fields": {"user": field, "key": field, "file": field},
            "required": [["user", "key"], ["file"]]}}}),
    );
    add(
        Kind::AutomatorType,
        json!({"name": "shell", "parameters": {"admin": {"fields": {"script": field}, "required": [["script"]]}}}),
    );
    add(Kind::Provider, json!({"name": "half", "providertype": "ec2", "provisioner": {"user": "me"}}));
    add(Kind::Provider, json!({"name": "whole", "providertype": "ec2", "provisioner": {"file": "f"}}));
    add(
        Kind::Service,
        json!({"name": "s", "provisioner": {"actions": {"install": {"type": "shell", "fields": {}}}}}),
    );
    let said: Vec<String> =
        check(&catalogue).into_iter().map(|one| format!("{}: {}", one.name, one.message)).collect();
    let needs = "provider type 'ec2' needs";
    let unless = "without it no cluster can be made here unless its user gives it";
    assert_eq!(
        said,
        [
            format!("cloud: {needs} user and key, or file; {unless}"),
            format!("half: {needs} key, or file; {unless}"),
            "s: automator 'shell' needs script".to_owned(),
        ]
    );
}

#[test]
fn what_dangles_is_told_all_at_once() {
    is(
        Kind::ClusterTemplate,
        json!({"name": "t", "defaults": {"services": ["web", "ghost"], "provider": "none", "hardwaretype": "h", "imagetype": "i"},
            "compatibility": {"services": ["x"], "imagetypes": ["y"]},
            "constraints": {"layout": {"mustcoexist": [["web", "m"]]},
                "services": {"web": {"hardwaretypes": ["q"], "quantities": {"ratio": {"r": "1:2"}}}}}}),
        &[
            "Error t defaults.services: service 'ghost' does not exist",
            "Error t defaults.provider: provider 'none' does not exist",
            "Error t defaults.hardwaretype: hardware type 'h' does not exist",
            "Error t defaults.imagetype: image type 'i' does not exist",
            "Error t constraints.layout.mustcoexist[0]: service 'm' does not exist",
            "Error t constraints.services.web.hardwaretypes: hardware type 'q' does not exist",
            "Error t constraints.services.web.quantities.ratio: service 'r' does not exist",
            "Error t defaults.services: service 'web' is the default but not among the compatible ones",
            "Error t defaults.services: service 'ghost' is the default but not among the compatible ones",
            "Error t defaults.imagetype: image type 'i' is the default but not among the compatible ones",
            "Warning t compatibility.services: service 'x' does not exist",
            "Warning t compatibility.imagetypes: image type 'y' does not exist",
        ],
    );
    is(
        Kind::Service,
        json!({"name": "s", "dependencies": {"conflicts": ["s"], "install": {"requires": ["ghost"], "uses": ["g"]}}}),
        &[
            "Error s dependencies.install.requires: it requires 'ghost', which no service is or provides",
            "Error s dependencies.conflicts: it conflicts with itself, so that no cluster can have it",
            "Warning s dependencies.install.uses: it uses 'g', which no service is or provides",
        ],
    );
    is(
        Kind::HardwareType,
        json!({"name": "h", "providermap": {"none": {"cost": 1}}}),
        &[
            "Warning h providermap.none: provider 'none' does not exist",
            "Warning h providermap.none.flavor: it cannot be used at provider 'none', because there is no flavor",
        ],
    );
    is(Kind::Provider, json!({"name": "p", "providertype": "x"}), &[]);
    is(
        Kind::ProviderType,
        json!({"name": "t"}),
        &["Error cloud providertype: provider type 'ec2' does not exist"],
    );
}

#[test]
fn what_contradicts_itself_is_told() {
    let template = |constraints: Value| json!({"name": "t", "defaults": {"services": ["base", "web"], "provider": "cloud"}, "constraints": constraints});
    is(
        Kind::ClusterTemplate,
        template(
            json!({"size": {"min": 5, "max": 2}, "services": {"web": {"quantities": {"min": 3, "max": 2, "stepSize": 0, "most": 1}}}}),
        ),
        &[
            "Error t constraints.size: the largest size is smaller than the smallest",
            "Error t constraints.services.web.quantities: the largest number is smaller than the smallest",
            "Error t constraints.services.web.quantities.stepSize: a step must be 1 or more",
            "Error t constraints.services.web.quantities.min: it needs more machines than the cluster may have",
            "Warning t constraints.services.web.quantities.most: there is no field 'most' here; there are min, max, stepSize and ratio",
        ],
    );
    is(
        Kind::ClusterTemplate,
        template(
            json!({"layout": {"mustcoexist": [["base", "web"]], "cantcoexist": [["web", "base"], ["web"]]}}),
        ),
        &[
            "Error t constraints.layout.cantcoexist[0]: web, base cannot be together, but base, web must",
            "Error t constraints.layout.cantcoexist[1]: 'web' alone in a group can be on no machine",
        ],
    );
    is(
        Kind::ClusterTemplate,
        template(json!({"services": {"web": {"quantities": {"min": 3}}}})),
        &["Warning t constraints.size.min: its smallest size is 1, but the smallest that works is 3: \
           no layout of 1 machine exists, because web must be on at least 3 machines"],
    );
    let mut never = template(
        json!({"services": {"web": {"quantities": {"max": 1}}, "base": {"quantities": {"max": 1}}}}),
    );
    never["constraints"]["size"] = json!({"min": 3});
    let lines = told(Kind::ClusterTemplate, never);
    assert!(
        lines.len() == 1 && lines[0].starts_with("Error t constraints: no size has a layout: "),
        "{lines:?}"
    );
    let mut leased = template(json!({}));
    leased["administration"] = json!({"leaseduration": {"initial": "2d", "max": "1d"}});
    leased["defaults"]["config"] = json!({"a": ["%host.nobody%"]});
    leased["links"] = json!([{"label": "l", "url": "http://%ip.self"}, {"label": "l", "url": "%ip.x%"}]);
    let lines = told(Kind::ClusterTemplate, leased);
    let paths: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(paths, ["defaults.config.a[0]:", "links[1].url:", "administration.leaseduration.max:"]);
}

#[test]
fn circles_are_told() {
    let mut catalogue = catalogue();
    let needs = |name: &str, kind: &str, other: &str| json!({"name": name, "dependencies": {"runtime": {kind: [other]}}});
    catalogue.add(Kind::Service, needs("a", "requires", "b")).unwrap();
    catalogue.add(Kind::Service, needs("b", "uses", "a")).unwrap();
    let findings = check(&catalogue);
    assert_eq!(findings[0].message, "services need each other in a circle: a needs b needs a");
    assert_eq!(findings[0].level, Level::Warning);
    catalogue.services.get_mut("b").unwrap().dependencies.runtime.requires.push("a".into());
    assert_eq!(check(&catalogue)[0].level, Level::Error);
}

#[test]
fn plugin_types_are_checked() {
    let lines = told(
        Kind::AutomatorType,
        json!({"name": "shell", "parameters": {"admin": {"required": [["script"]]}},
            "resourceTypes": {"a": {"format": "zip"}, "b": {"format": "file", "permissions": "09"}}}),
    );
    assert_eq!(lines.len(), 3, "{lines:?}");
}
