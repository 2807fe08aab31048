//! Ends the programs of a provisioner that was killed.
//!
//! Whoever is killed cannot end what it started, and root gives its tasks to another a few seconds later. So a small
//! process beside us, the warden, reads from a pipe which groups of processes there are. The kernel closes that pipe
//! however we end; then the warden kills the groups that are left. A program must not begin before its group is known
//! there: it waits for something that we give it only then.
//!
//! The warden is a shell of its own name and group, so that it is not hit by what is meant for us.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SCRIPT: &str = r#"
set -f
all=' '
while read -r sign group; do
  case "$sign$all" in
    +*) all="$all$group " ;;
    -*" $group "*) all="${all%% "$group" *} ${all#* "$group" }" ;;
  esac
done
for group in $all; do kill -s KILL -- "-$group"; done
"#;

/// The one of this process.
static WARDEN: Mutex<Warden> = Mutex::new(Warden { shell: None, groups: BTreeSet::new() });

struct Warden {
    shell: Option<(Child, ChildStdin)>,
    groups: BTreeSet<u32>,
}

fn warden() -> MutexGuard<'static, Warden> {
    WARDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The group ends with us from now on, however we end.
pub(crate) fn watch(group: u32) -> io::Result<()> {
    let mut warden = warden();
    warden.groups.insert(group);
    let told = warden.tell('+', group);
    if told.is_err() {
        warden.groups.remove(&group);
    }
    told
}

/// Its number may be another's from now on.
pub(crate) fn forget(group: u32) {
    let mut warden = warden();
    if warden.groups.remove(&group)
        && let Err(error) = warden.tell('-', group)
    {
        tracing::warn!(%error, "the programs of this provisioner would outlive it if it were killed");
    }
}

impl Warden {
    /// One that has died is replaced, and told of all that there are.
    fn tell(&mut self, sign: char, group: u32) -> io::Result<()> {
        if let Some((_, pipe)) = &mut self.shell
            && pipe.write_all(format!("{sign} {group}\n").as_bytes()).is_ok()
        {
            return Ok(());
        }
        if let Some((mut shell, pipe)) = self.shell.take() {
            drop(pipe);
            shell.wait()?;
        }
        let (shell, mut pipe) = start()?;
        let all: String = self.groups.iter().map(|group| format!("+ {group}\n")).collect();
        pipe.write_all(all.as_bytes())?;
        self.shell = Some((shell, pipe));
        Ok(())
    }
}

fn start() -> io::Result<(Child, ChildStdin)> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).current_dir("/").process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut shell = command.spawn()?;
    let pipe = shell.stdin.take().ok_or_else(|| io::Error::other("the warden has no standard input"))?;
    Ok((shell, pipe))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").process_group(0).spawn().unwrap()
    }

    fn ended(child: &mut Child, within: Duration) -> bool {
        let began = Instant::now();
        while began.elapsed() < within {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Here the pipe is closed by hand; `banyan`'s tests kill a provisioner.
    #[test]
    fn groups_end_with_the_pipe_and_those_that_were_forgotten_do_not() {
        let mut sleepers: Vec<Child> = (0..4).map(|_| sleeper()).collect();
        let mut mine = Warden { shell: None, groups: BTreeSet::new() };
        for sleeper in &sleepers {
            mine.groups.insert(sleeper.id());
            mine.tell('+', sleeper.id()).unwrap();
        }
        let forgotten = sleepers.remove(1);
        mine.groups.remove(&forgotten.id());
        mine.tell('-', forgotten.id()).unwrap();
        // One that is killed ends nothing that it should not, and is replaced.
        let (shell, _) = mine.shell.as_mut().unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(sleepers.iter_mut().all(|sleeper| sleeper.try_wait().unwrap().is_none()));
        let mut late = sleeper();
        mine.groups.insert(late.id());
        mine.tell('+', late.id()).unwrap();
        mine.tell('-', 1 << 30).unwrap();
        drop(mine.shell.take().map(|(mut shell, pipe)| {
            drop(pipe);
            shell.wait()
        }));
        for sleeper in sleepers.iter_mut().chain([&mut late]) {
            assert!(ended(sleeper, Duration::from_secs(10)));
        }
        let mut forgotten = forgotten;
        assert!(forgotten.try_wait().unwrap().is_none());
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}
