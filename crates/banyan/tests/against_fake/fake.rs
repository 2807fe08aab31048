//! A cloud that says what a test tells it to: scripted answers by method and
//! path. The last answer of a script is repeated.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

#[derive(Clone)]
pub struct Answer {
    status: u16,
    body: Vec<u8>,
    /// Say that more comes than does, so that the reader sees a broken stream.
    broken: bool,
}

pub fn ok(body: Value) -> Answer {
    Answer { status: 200, body: body.to_string().into_bytes(), broken: false }
}

pub fn raw(text: &str) -> Answer {
    Answer { status: 200, body: text.as_bytes().to_vec(), broken: false }
}

pub fn broken(text: &str) -> Answer {
    Answer { broken: true, ..raw(text) }
}

pub fn missing() -> Answer {
    let problem = json!({"type": "x", "title": "x", "status": 404, "code": "not-found", "detail": "there is no such thing"});
    Answer { status: 404, body: problem.to_string().into_bytes(), broken: false }
}

/// An instance as the API shows it, with some fields replaced.
pub fn instance(change: Value) -> Value {
    let mut instance = json!({
        "id": "i-0123456789abcdef0", "name": "web", "tenant": "main", "version": 1,
        "spec": spec(), "run": "running", "restart_count": 0, "image_id": "img-00000000000000001",
        "phase": "pending", "created_at": "2026-01-01T00:00:00Z", "created_by": "admin"
    });
    for (field, value) in change.as_object().unwrap() {
        instance[field] = value.clone();
    }
    instance
}

pub fn spec() -> Value {
    let spec = model::InstanceSpec::new("busybox");
    serde_json::to_value(spec).unwrap()
}

pub fn page(items: Value) -> Answer {
    ok(json!({"items": items, "seq": 1}))
}

/// A request.
struct Request {
    /// Method and path.
    route: String,
    /// What `If-Match` said.
    if_match: Option<String>,
    body: Vec<u8>,
}

type Seen = Arc<Mutex<Vec<Request>>>;
type Scripts = Arc<Mutex<BTreeMap<String, Vec<Answer>>>>;

pub struct Fake {
    endpoint: String,
    scripts: Scripts,
    seen: Seen,
    home: tempfile::TempDir,
}

impl Fake {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (scripts, seen) = (Scripts::default(), Arc::new(Mutex::new(Vec::new())));
        let (ours, log) = (scripts.clone(), seen.clone());
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (scripts, seen) = (ours.clone(), log.clone());
                std::thread::spawn(move || serve(stream, &scripts, &seen));
            }
        });
        let fake = Self { endpoint, scripts, seen, home: tempfile::tempdir().unwrap() };
        fake.on("GET /v1/events", vec![page(json!([]))]);
        fake
    }

    /// What `METHOD /path` answers, one after the other.
    pub fn on(&self, route: &str, answers: Vec<Answer>) {
        self.scripts.lock().unwrap().insert(route.to_owned(), answers);
    }

    /// How often a route was asked.
    pub fn count(&self, route: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.route == route).count()
    }

    /// What was last sent to a route.
    pub fn sent(&self, route: &str) -> Value {
        let seen = self.seen.lock().unwrap();
        let last = seen.iter().rfind(|seen| seen.route == route);
        serde_json::from_slice(&last.unwrap_or_else(|| panic!("{route} was not asked")).body).unwrap()
    }

    /// The versions that a route was asked to change, one a request.
    pub fn versions(&self, route: &str) -> Vec<Option<String>> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.route == route).map(|seen| seen.if_match.clone()).collect()
    }

    pub fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_banyan"))
            .args(words)
            .env_clear()
            .env("HOME", self.home.path())
            .env("BANYAN_CONFIG", self.home.path().join("config.yaml"))
            .env("BANYAN_ENDPOINT", &self.endpoint)
            .env("BANYAN_TOKEN", "token")
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    pub fn write(&self, name: &str, content: &str) {
        std::fs::write(self.home.path().join(name), content).unwrap();
    }
}

fn serve(stream: TcpStream, scripts: &Scripts, seen: &Seen) {
    let mut reader = BufReader::new(stream);
    while let Some((mut request, length)) = request(&mut reader) {
        reader.by_ref().take(length).read_to_end(&mut request.body).unwrap();
        let route = request.route.clone();
        seen.lock().unwrap().push(request);
        let answer = match scripts.lock().unwrap().get_mut(&route) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers[0].clone(),
            None => missing(),
        };
        let more = if answer.broken { 100 } else { 0 };
        let head = format!(
            "HTTP/1.1 {} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.status,
            answer.body.len() + more
        );
        let stream = reader.get_mut();
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&answer.body)).is_err()
            || answer.broken
        {
            return;
        }
    }
}

/// The next request without its body, and the length of that.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(Request, u64)> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    let route = format!("{method} {}", target.split('?').next()?);
    let mut request = Request { route, if_match: None, body: Vec::new() };
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            return Some((request, length));
        }
        if let Some(value) = line.to_lowercase().strip_prefix("if-match:") {
            request.if_match = Some(value.trim().trim_matches('"').to_owned());
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
}

/// A workload as the API shows it, with some fields replaced; `status` is merged.
pub fn workload(change: Value) -> Value {
    let spec = model::WorkloadSpec::new(model::InstanceSpec::new("busybox"));
    let mut workload = json!({
        "id": "w-0123456789abcdef0", "name": "web", "tenant": "main", "version": 1, "revision": 1,
        "spec": spec, "created_at": "2026-01-01T00:00:00Z", "created_by": "admin",
        "status": {"phase": "available", "wanted": 1, "instances": 1, "updated": 1, "available": 1}
    });
    for (field, value) in change.as_object().unwrap() {
        match (field.as_str(), value) {
            ("status", Value::Object(status)) => {
                status.iter().for_each(|(field, value)| workload["status"][field] = value.clone());
            }
            _ => workload[field] = value.clone(),
        }
    }
    workload
}

/// An app as the API shows it, of these workloads.
pub fn app(workloads: &[&str]) -> Value {
    let member = |name: &&str| json!({"name": name, "phase": "available", "wanted": 1, "available": 1});
    json!({
        "id": "app-0123456789abcdef0", "name": "shop", "tenant": "main", "version": 1, "description": "",
        "created_at": "2026-01-01T00:00:00Z", "created_by": "admin",
        "workloads": workloads.iter().map(member).collect::<Vec<_>>()
    })
}

pub fn refused(status: u16, code: &str, detail: &str) -> Answer {
    let problem = json!({"type": "x", "title": "x", "status": status, "code": code, "detail": detail});
    Answer { status, body: problem.to_string().into_bytes(), broken: false }
}
