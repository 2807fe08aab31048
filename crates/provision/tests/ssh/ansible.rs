//! Playbooks, run by the program itself, which comes from PyPI.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use provision::automator::{Ansible, Automator};
use serde_json::json;

use crate::world::World;

/// Installed once, with Debian's python3, because others than root must be able to run it.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let install = || {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ansible");
        let ready = home.join("ready");
        if !ready.exists() {
            let run = |command: &mut Command, lacks: &str| {
                let output = command.output().expect(lacks);
                assert!(output.status.success(), "{lacks}: {}", String::from_utf8_lossy(&output.stderr));
            };
            let venv = ["-m", "venv", "--clear"];
            run(Command::new("/usr/bin/python3").args(venv).arg(&home), "apt-get install python3-venv");
            let words = ["install", "-q", "--disable-pip-version-check", "ansible-core==2.19.14"];
            run(Command::new(home.join("bin/pip")).args(words), "ansible-core is not to be had from PyPI");
            std::fs::write(&ready, "").unwrap();
        }
        home.join("bin/ansible-playbook")
    };
    PROGRAM.get_or_init(install).clone()
}

/// Folders of runs that are here, and ssh that lasts longer than its run.
fn left() -> Vec<String> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("banyan-ansible-")).collect()
}

async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ONE.lock().await
}

const PLAYBOOK: &str = r#"
- hosts: web
  roles: [greeting]
  tasks:
    - copy:
        dest: "{{ mark }}/page"
        content: "{{ banyan_action }} {{ banyan_service }} {{ web.port }} {{ settings['web.port'] }} {{ web.text }}\n"
      vars: {mark: "{{ lookup('file', 'where') }}"}
    - shell: "cat /etc/shadow || id -u"
      delegate_to: localhost
      connection: local
      register: seen
    - debug: {var: seen.stdout}
"#;

#[tokio::test]
async fn a_playbook_has_its_roles_and_settings_and_leaves_nothing() {
    let _alone = alone().await;
    let world = World::new(Ansible::new(program()));
    let mark = world.sshd.folder().display().to_string();
    world.archive("archives/site.tgz", &[("site.yml", PLAYBOOK), ("where", &mark)]);
    world.archive("roles/greeting.tgz", &[("greeting/tasks/main.yml", "- debug: {msg: the role is here}\n")]);
    let fields = json!({"archive": "site.tgz", "playbook": "site.yml", "roles": "greeting.tgz"});
    let report = world.act("INSTALL", fields).await.unwrap();
    assert!(report.stdout.contains("the role is here"), "{}", report.stdout);
    // What a playbook does here, it does as nobody in particular.
    assert!(report.stdout.contains(r#""seen.stdout": "0""#), "{}", report.stdout);
    let page = std::fs::read_to_string(world.sshd.folder().join("page")).unwrap();
    assert_eq!(page, "install web 80 80 {{ 6 * 7 }} 'it'\n");
    assert_eq!(left(), Vec::<String>::new());
}

#[tokio::test]
async fn a_playbook_that_fails_or_lasts_or_meets_another_machine_says_so() {
    let _alone = alone().await;
    let mut world = World::new(Ansible::new(program()));
    let stage = |name: &str, text: &str| std::fs::write(world.staged(name), text).unwrap();
    stage("playbooks/fails.yml", "- hosts: all\n  gather_facts: no\n  tasks: [{command: /bin/false}]\n");
    stage("playbooks/lasts.yml", "- hosts: all\n  gather_facts: no\n  tasks: [{command: sleep 60}]\n");
    let failed = world.act("START", json!({"playbook": "fails.yml"})).await.unwrap_err();
    assert!(failed.message.starts_with("start of 'web' failed on 127.0.0.1: "), "{failed}");
    assert!(failed.message.contains("non-zero return code") && failed.is_passing, "{failed}");
    let slow = world.act("START", json!({"playbook": "lasts.yml", "timeout": 4})).await.unwrap_err();
    assert_eq!(slow.message, "start of 'web' took longer than 4 s");
    let absent = world.act("START", json!({"playbook": "none.yml"})).await.unwrap_err();
    assert!(absent.message.ends_with("it is not staged; upload and stage it") && !absent.is_passing);
    for wrong in ["../x.yml", "-x", "/etc/x.yml", ""] {
        let refused = world.act("START", json!({"playbook": wrong})).await.unwrap_err();
        assert!(!refused.is_passing, "{wrong}: {refused}");
    }
    // The machine was replaced by another while ansible has the old key.
    let before = world.task("START", json!({"playbook": "fails.yml"}));
    let machine = provision::machine::Machine::of(&before, &world.pool).unwrap();
    world.sshd.replace();
    let refused = world.act_with(&machine, &before).await.unwrap_err();
    assert!(refused.stdout.contains("Host key verification failed"), "{refused} {}", refused.stdout);
    assert_eq!(left(), Vec::<String>::new());
}

#[tokio::test]
async fn it_is_offered_where_the_program_works_for_all_users() {
    let _alone = alone().await;
    // Runs have a `/tmp` of their own.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(folder.path(), 0o755);
    let program = folder.path().join("ansible-playbook");
    let ansible = Ansible::new(program.clone());
    assert!(!ansible.is_ready().await, "it is not there");
    std::fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
    mode(&program, 0o700);
    assert!(!ansible.is_ready().await, "only its owner may run it");
    let world = World::new(Ansible::new(program.clone()));
    std::fs::write(world.staged("playbooks/a.yml"), "- hosts: all\n").unwrap();
    let refused = world.act("START", json!({"playbook": "a.yml"})).await.unwrap_err();
    assert!(refused.message.ends_with("the one that is there may not be run by all users"), "{refused}");
    mode(&program, 0o755);
    assert!(ansible.is_ready().await && ansible.is_ready().await);
    std::fs::remove_file(&program).unwrap();
    assert!(!ansible.is_ready().await, "it is gone again");
}

#[tokio::test]
async fn a_provisioner_without_ansible_says_what_to_install() {
    let _alone = alone().await;
    let world = World::new(Ansible::new("/nonexistent/ansible-playbook".into()));
    let refused = world.act("START", json!({"playbook": "a.yml"})).await.unwrap_err();
    assert!(refused.message.contains("install ansible there") && !refused.is_passing, "{refused}");
}
