//! Tenants: neighbours do not exist for each other, quotas hold, and contexts say who acts.

use crate::support::*;

const PASSWORD: &str = "correct horse battery staple";

/// A user of a tenant with a context file of its own.
struct Person<'a> {
    cloud: &'a Cloud,
    config: std::path::PathBuf,
}

impl<'a> Person<'a> {
    /// Makes the user as the operator does, and logs in as the user does.
    fn new(cloud: &'a Cloud, tenant: &str, name: &str, role: &str) -> Self {
        let words = ["--tenant", tenant, "user", "create", name, "--role", role, "--password-stdin"];
        let made = cloud.fed(&words, PASSWORD.as_bytes());
        assert!(made.status.success(), "{}", text(&made.stderr));
        let person = Self { cloud, config: cloud.home.join(format!("{tenant}-{name}.yaml")) };
        person.login(tenant, name, PASSWORD, "work").unwrap();
        person
    }

    fn login(&self, tenant: &str, name: &str, password: &str, context: &str) -> Result<(), String> {
        let endpoint = self.cloud.endpoint();
        let words = [
            "--tenant",
            tenant,
            "--context",
            context,
            "login",
            &endpoint,
            "--user",
            name,
            "--password-stdin",
        ];
        let output = fed(&mut self.command(&words), password.as_bytes());
        if output.status.success() { Ok(()) } else { Err(text(&output.stderr)) }
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.cloud.command(words);
        command.env("BANYAN_CONFIG", &self.config);
        command
    }

    fn good(&self, words: &[&str]) -> String {
        good(&mut self.command(words))
    }

    fn bad(&self, words: &[&str]) -> String {
        bad(&mut self.command(words))
    }
}

#[test]
fn a_neighbour_sees_nothing() {
    let cloud = Cloud::shared();
    cloud.good(&["tenant", "create", "red"]);
    cloud.good(&["tenant", "create", "blue"]);
    let ann = Person::new(&cloud, "red", "ann", "admin");
    let bob = Person::new(&cloud, "blue", "bob", "admin");
    says(&ann.good(&["whoami"]), &["ann", "red", "admin"]);
    let create =
        ["instance", "create", "secret", "--image", "busybox", "--memory", "16MiB", "--", "sleep", "100000"];
    ann.good(&create);
    let id = ann.good(&["instance", "list", "-o", "json"]);
    let id = serde_json::from_str::<serde_json::Value>(&id).unwrap()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(bob.good(&["instance", "list", "-o", "name"]), "");
    for name in ["secret", &id] {
        for words in [
            &["instance", "get", name][..],
            &["instance", "logs", name],
            &["instance", "exec", name, "--", "true"],
            &["instance", "stats", name],
            &["instance", "stop", name],
            &["instance", "delete", name],
            &["why", "instance", name],
            &["--tenant", "red", "instance", "get", name],
        ] {
            let said = bob.bad(words);
            assert!(said.contains("there is no"), "{words:?}: {said}");
        }
    }
    assert!(!bob.good(&["event", "list"]).contains("secret"));
    says(&bob.bad(&["tenant", "get", "red"]), &["this needs the role operator"]);
    bob.good(&create);
    assert_eq!(ann.good(&["instance", "list", "-o", "name"]), "secret\n");
    says(
        &cloud.good(&["--tenant", "red", "event", "list", "--subject", "secret"]),
        &["ann", "instance.create"],
    );
    bob.good(&["instance", "delete", "secret"]);
    assert_eq!(ann.good(&["instance", "get", "secret", "-o", "name"]), "secret\n");
    ann.good(&["instance", "delete", "secret"]);
}

#[test]
fn quotas_hold_and_say_what_is_used() {
    let cloud = Cloud::shared();
    cloud.good(&["tenant", "create", "small", "--instances", "2", "--cpu", "1", "--memory", "96MiB"]);
    let eve = Person::new(&cloud, "small", "eve", "member");
    let create = |name: &'static str, memory: &'static str| {
        ["instance", "create", name, "--image", "busybox", "--memory", memory, "--", "sleep", "100000"]
    };
    eve.good(&create("a", "32MiB"));
    says(&eve.bad(&create("b", "128MiB")), &["quota", "memory", "96MiB"]);
    eve.good(&create("b", "32MiB"));
    says(&eve.bad(&create("c", "8MiB")), &["quota", "instances", "2"]);
    says(&eve.good(&["quota", "get"]), &["2 of 2", "64MiB of 96MiB"]);
    assert_eq!(eve.good(&["instance", "list", "-o", "name"]), "a\nb\n");
    says(&eve.bad(&["quota", "set", "small", "--instances", "9"]), &["this needs the role"]);
    cloud.good(&["quota", "set", "small", "--instances", "3"]);
    eve.good(&create("c", "8MiB"));
    eve.good(&["instance", "delete", "a", "b", "c"]);
    says(&eve.good(&["quota", "get"]), &["0 of 3"]);
    eve.good(&create("a", "96MiB"));
    says(&cloud.bad(&["tenant", "delete", "small"]), &["small"]);
    eve.good(&["instance", "delete", "a"]);
}

#[test]
fn contexts_and_tokens_say_who_acts() {
    let cloud = Cloud::shared();
    cloud.good(&["tenant", "create", "green"]);
    let kim = Person::new(&cloud, "green", "kim", "viewer");
    let said = kim.login("green", "kim", "wrong password", "other").unwrap_err();
    says(&said, &["error: "]);
    says(&kim.good(&["instance", "list", "-o", "json"]), &["[]"]);
    says(&kim.bad(&["instance", "create", "x", "--image", "busybox"]), &["this needs the role"]);
    Person::new(&cloud, "green", "lee", "member");
    kim.login("green", "lee", PASSWORD, "second").unwrap();
    says(&kim.good(&["whoami"]), &["lee"]);
    assert_eq!(kim.good(&["context", "current"]), "second\n");
    kim.good(&["context", "use", "work"]);
    says(&kim.good(&["whoami"]), &["kim"]);
    says(&kim.good(&["--context", "second", "whoami"]), &["lee"]);
    let token = kim.good(&["--context", "second", "token", "create", "ci", "-o", "json"]);
    let secret =
        serde_json::from_str::<serde_json::Value>(&token).unwrap()["secret"].as_str().unwrap().to_owned();
    says(&good(kim.command(&["whoami"]).env("BANYAN_TOKEN", &secret)), &["lee"]);
    kim.good(&["--context", "second", "token", "delete", "ci"]);
    says(&bad(kim.command(&["whoami"]).env("BANYAN_TOKEN", &secret)), &["banyan login"]);
    kim.good(&["logout"]);
    says(&kim.bad(&["whoami"]), &["banyan login"]);
}
