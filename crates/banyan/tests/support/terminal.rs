//! A command under a pseudo terminal, as a person's shell would start it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use super::{signal, text, until};

pub struct Terminal {
    host: File,
    side: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn start(command: &mut Command, rows: u16, cols: u16) -> Self {
        let host = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&host).unwrap();
        unlockpt(&host).unwrap();
        let name = ptsname(&host, Vec::new()).unwrap();
        let side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let host = File::from(host);
        size(&host, rows, cols);
        let end = || Stdio::from(side.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, sink) = (host.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { host, side, child, seen }
    }

    pub fn seen(&self) -> String {
        text(&self.seen.lock().unwrap())
    }

    pub fn expect(&self, part: &str) {
        until(&format!("the terminal shows '{part}'"), || self.seen().contains(part).then_some(()));
    }

    pub fn write(&mut self, keys: &str) {
        self.host.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        size(&self.host, rows, cols);
        // Without a session of its own the kernel does not tell the child.
        signal(self.child.id(), rustix::process::Signal::WINCH);
    }

    /// Whether lines are edited and shown by the terminal, as a shell leaves it.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.side).unwrap().local_modes;
        modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO)
    }

    pub fn end(&mut self) -> ExitStatus {
        until("the command under the terminal ends", || self.child.try_wait().unwrap())
    }
}

fn size(terminal: &File, rows: u16, cols: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}
