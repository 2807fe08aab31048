//! `ec2`: instances of Amazon or of any other cloud that answers EC2's Query API.
//!
//! Fields: `api_user` and `api_password`, the access key and its secret; `aws_region`; `endpoint`, the address of the API
//! (Amazon's if empty); `subnet_id`; `security_groups`, names or ids; `associate_public_ip`; `address`, `private`
//! if machines are reached by their private address; `ssh_keypair`, one more key that is let in; `ssh_wait`, seconds that
//! sshd may take. Flavor and image are of hardware and image types.
//!
//! The machine learns the cluster's public key from its user data. It is tagged with its cluster and node, and made with a
//! token that is the task's, so asking twice makes one. A machine that was given up has used its token up; the next one
//! has the next.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use super::cloud_init::user_data;
use super::sign::{Signer, hex};
use super::{Provider, Setting, confirm, patience};
use crate::machine::Machine;
use crate::task::{Fault, Report, Task, Verb};

const VERSION: &str = "2016-11-15";
const ASK_MAX: Duration = Duration::from_secs(30);
/// How long an instance may take to run, and to be gone.
const RUN_MAX: Duration = Duration::from_secs(600);
const GONE_MAX: Duration = Duration::from_secs(600);
/// How long sshd may take, unless the provider says otherwise.
const SSHD_MAX: Duration = Duration::from_secs(300);
/// A cloud may not know at once what it just made.
const UNKNOWN_MAX: Duration = Duration::from_secs(30);
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;

/// Machines that one task may make, one after the other.
const TOKENS_MAX: u32 = 8;
/// What the cloud says of a token whose machine is gone.
const USED_UP: &str = "IdempotentInstanceTerminated";

const TAG_CLUSTER: &str = "banyan:cluster";
const TAG_NODE: &str = "banyan:node";

pub struct Ec2;

impl Provider for Ec2 {
    fn name(&self) -> &str {
        "ec2"
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        match setting.task.task_name {
            Verb::Create => create(setting.task).boxed(),
            Verb::Confirm => ready(setting).boxed(),
            _ => delete(setting.task).boxed(),
        }
    }
}

/// The items of a list, as EC2 writes them.
#[derive(Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    item: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { item: Vec::new() }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(default)]
    reservation_set: Items<Reservation>,
}

/// Also what making instances answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reservation {
    #[serde(default)]
    instances_set: Items<Instance>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instance {
    instance_id: String,
    instance_state: State,
    ip_address: Option<String>,
    private_ip_address: Option<String>,
    state_reason: Option<Reason>,
}

#[derive(Debug, Deserialize)]
struct State {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Reason {
    #[serde(default)]
    message: String,
}

impl Instance {
    fn is_gone(&self) -> bool {
        self.instance_state.name == "terminated"
    }

    fn why(&self) -> &str {
        self.state_reason.as_ref().map_or("", |reason| &reason.message)
    }

    /// Where it is reached, and where its neighbours reach it.
    fn addresses(&self, is_private: bool) -> Option<(String, String)> {
        let some = |address: &Option<String>| address.clone().filter(|text| !text.is_empty());
        let private = some(&self.private_ip_address);
        let public = some(&self.ip_address).filter(|_| !is_private);
        let bind = private.clone().or_else(|| public.clone())?;
        Some((public.or(private)?, bind))
    }
}

/// Errors as EC2 writes them; clouds beside it differ in how deep.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refused {
    #[serde(default)]
    errors: Errors,
    error: Option<ErrorText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Errors {
    error: Option<ErrorText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ErrorText {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The API of one provider.
struct Api {
    signer: Signer,
    client: reqwest::Client,
}

type Parameters = Vec<(String, String)>;

impl Api {
    fn of(task: &Task) -> Result<Self, Fault> {
        let field = |name: &str| task.provider_field(name).filter(|text| !text.is_empty());
        let must = |name: &str| {
            field(name).ok_or_else(|| Fault::credentials(format!("the provider has no '{name}': fill it in")))
        };
        let region =
            field("aws_region").or_else(|| field("region")).unwrap_or_else(|| "us-east-1".to_owned());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(Fault::invalid(format!("'{}' is no region", model::shown(&region))));
        }
        let endpoint = field("endpoint").unwrap_or_else(|| format!("https://ec2.{region}.amazonaws.com/"));
        let endpoint = reqwest::Url::parse(&endpoint)
            .ok()
            .filter(|url| ["http", "https"].contains(&url.scheme()) && url.host_str().is_some())
            .ok_or_else(|| {
                Fault::invalid(format!("'{}' is no address of an API", model::shown(&endpoint)))
            })?;
        let signer = Signer {
            endpoint,
            region,
            service: "ec2",
            access: must("api_user")?,
            secret: must("api_password")?.into(),
        };
        let client = reqwest::Client::builder()
            .timeout(ASK_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Fault::failed(error.to_string()))?;
        Ok(Self { signer, client })
    }

    /// Asks for one action. A fault has the cloud's own code in it.
    async fn ask(&self, action: &str, mut parameters: Parameters) -> Result<String, Denied> {
        parameters.push(("Action".to_owned(), action.to_owned()));
        parameters.push(("Version".to_owned(), VERSION.to_owned()));
        let signed = self.signer.post(&parameters, jiff::Timestamp::now());
        let mut request = self.client.post(self.signer.endpoint.clone()).body(signed.body);
        for (name, value) in signed.headers {
            request = request.header(name, value);
        }
        // What the library says names the address, and no secret is in that.
        let lost = |error: reqwest::Error| {
            let why = if error.is_timeout() { "it does not answer".to_owned() } else { deep(&error) };
            Denied { code: String::new(), fault: Fault::failed(format!("the cloud cannot be asked: {why}")) }
        };
        let mut response = request.send().await.map_err(lost)?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(lost)? {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_MAX {
                let text = format!("the cloud answered more than {} MiB", ANSWER_MAX >> 20);
                return Err(Denied { code: String::new(), fault: Fault::failed(text) });
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() { Ok(body) } else { Err(Denied::of(action, status.as_u16(), &body)) }
    }

    async fn describe(&self, parameters: Parameters) -> Result<Vec<Instance>, Denied> {
        let answer = self.ask("DescribeInstances", parameters).await?;
        let described: Described = read(&answer)?;
        let reservations = described.reservation_set.item.into_iter();
        Ok(reservations.flat_map(|reservation| reservation.instances_set.item).collect())
    }

    /// The machine of the task, by its id or by its tags, unless it is gone.
    async fn find(&self, task: &Task) -> Result<Option<Instance>, Denied> {
        let parameters = match task.provider_id() {
            Some(id) => vec![("InstanceId.1".to_owned(), id.to_owned())],
            None => filters(task),
        };
        match self.describe(parameters).await {
            Ok(found) => Ok(found.into_iter().find(|instance| !instance.is_gone())),
            Err(denied) if denied.code == "InvalidInstanceID.NotFound" => Ok(None),
            Err(denied) => Err(denied),
        }
    }
}

/// A refusal, with the cloud's word for it.
struct Denied {
    code: String,
    fault: Fault,
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        denied.fault
    }
}

impl Denied {
    fn of(action: &str, status: u16, body: &str) -> Self {
        let refused: Refused = quick_xml::de::from_str(body).unwrap_or_default();
        let said = refused.errors.error.or(refused.error).unwrap_or_default();
        let why: String = match said.message.is_empty() {
            true => format!("it answered {status}"),
            false => said.message.chars().filter(|letter| !letter.is_control()).take(500).collect(),
        };
        let text = format!("the cloud refuses {action}: {why} ({})", model::shown(&said.code));
        Self { fault: fault(&said.code, status, text), code: said.code }
    }
}

/// What the cloud's word means for the task.
fn fault(code: &str, status: u16, text: String) -> Fault {
    match code {
        "AuthFailure"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "UnauthorizedOperation"
        | "OptInRequired"
        | "MissingAuthenticationToken"
        | "InvalidAccessKeyId"
        | "AccessDenied"
        | "PendingVerification"
        | "Blocked"
        | "UnrecognizedClientException" => Fault::credentials(text),
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "Unavailable"
        | "InternalError"
        | "RequestExpired" => Fault::failed(text),
        code if code.ends_with("LimitExceeded") => Fault { is_passing: false, ..Fault::failed(text) },
        _ if status == 401 || status == 403 => Fault::credentials(text),
        _ if status == 429 || status >= 500 => Fault::failed(text),
        _ => Fault::invalid(text),
    }
}

/// The innermost reason.
fn deep(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}

fn read<T: serde::de::DeserializeOwned>(answer: &str) -> Result<T, Denied> {
    quick_xml::de::from_str(answer).map_err(|error| {
        let text = format!("the cloud's answer cannot be read: {error}");
        Denied { code: String::new(), fault: Fault::failed(text) }
    })
}

fn filters(task: &Task) -> Parameters {
    let mut all = Vec::new();
    for (place, (tag, value)) in
        [(TAG_CLUSTER, &task.cluster_id), (TAG_NODE, &task.node_id)].into_iter().enumerate()
    {
        all.push((format!("Filter.{}.Name", place + 1), format!("tag:{tag}")));
        all.push((format!("Filter.{}.Value.1", place + 1), value.clone()));
    }
    all
}

/// What a request is known by, so that the same one makes nothing more.
fn token(task: &Task, number: u32) -> String {
    let once = format!("{}/{}/{}", task.cluster_id, task.node_id, task.task_id);
    hex(&Sha256::digest(if number == 0 { once } else { format!("{once}/{number}") }))
}

fn wish(task: &Task, number: u32) -> Result<Parameters, Fault> {
    use base64::Engine;
    let missing = |what: &str| Fault::invalid(format!("the task does not say the {what} of the machine"));
    let field = |name: &str| task.provider_field(name).filter(|text| !text.is_empty());
    let user_data = base64::engine::general_purpose::STANDARD.encode(user_data(task)?);
    let mut all: Parameters = [
        ("ImageId", task.text("image").ok_or_else(|| missing("image"))?),
        ("InstanceType", task.text("flavor").ok_or_else(|| missing("flavor"))?),
        ("MinCount", "1".to_owned()),
        ("MaxCount", "1".to_owned()),
        ("ClientToken", token(task, number)),
        ("UserData", user_data),
        ("TagSpecification.1.ResourceType", "instance".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let tags = [("Name", task.hostname()), (TAG_CLUSTER, &task.cluster_id), (TAG_NODE, &task.node_id)];
    for (place, (name, value)) in tags.into_iter().enumerate() {
        all.push((format!("TagSpecification.1.Tag.{}.Key", place + 1), name.to_owned()));
        all.push((format!("TagSpecification.1.Tag.{}.Value", place + 1), value.to_owned()));
    }
    if let Some(key) = field("ssh_keypair") {
        all.push(("KeyName".to_owned(), key));
    }
    // A machine with a public address says all about its network in one place.
    let is_public = field("associate_public_ip").is_some_and(|text| text == "true");
    let at = if is_public { "NetworkInterface.1." } else { "" };
    if is_public {
        all.push((format!("{at}DeviceIndex"), "0".to_owned()));
        all.push((format!("{at}AssociatePublicIpAddress"), "true".to_owned()));
    }
    if let Some(subnet) = field("subnet_id") {
        all.push((format!("{at}SubnetId"), subnet));
    }
    let groups = field("security_groups").unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    for (place, group) in groups.enumerate() {
        let kind = if group.starts_with("sg-") || is_public { "SecurityGroupId" } else { "SecurityGroup" };
        all.push((format!("{at}{kind}.{}", place + 1), group.to_owned()));
    }
    Ok(all)
}

async fn create(task: &Task) -> Result<Report, Fault> {
    let api = Api::of(task)?;
    let there = api.find(task).await?.filter(|instance| instance.instance_state.name != "shutting-down");
    let instance = match there {
        Some(there) => there,
        None => make(&api, task).await?,
    };
    let mut report = Report { hostname: Some(task.hostname().to_owned()), ..Report::default() };
    report.result.insert("providerid".to_owned(), json!(instance.instance_id));
    Ok(report)
}

async fn make(api: &Api, task: &Task) -> Result<Instance, Fault> {
    let mut number = 0;
    let made = loop {
        match api.ask("RunInstances", wish(task, number)?).await {
            Err(denied) if denied.code == USED_UP && number + 1 < TOKENS_MAX => number += 1,
            told => break told?,
        }
    };
    let made: Reservation = read(&made)?;
    let made = made.instances_set.item.into_iter().next();
    made.ok_or_else(|| Fault::failed("the cloud does not say what it made"))
}

/// Waits until it runs and lets us in.
async fn ready(setting: &Setting<'_>) -> Result<Report, Fault> {
    let task = setting.task;
    let (access, bind) = running(task).await?;
    let mut reached = task.clone();
    reached.config.insert("ipaddresses".to_owned(), json!({"access_v4": access}));
    let machine = Machine::of(&reached, setting.pool)?;
    let wait = task.provider_field("ssh_wait").and_then(|text| text.parse().ok());
    let wait = wait.map_or(SSHD_MAX, Duration::from_secs).min(RUN_MAX);
    let mut report = confirm(&machine, patience(task, wait)).await?;
    report.ipaddresses = [("access_v4".to_owned(), access), ("bind_v4".to_owned(), bind)].into();
    Ok(report)
}

async fn running(task: &Task) -> Result<(String, String), Fault> {
    let api = Api::of(task)?;
    let is_private = task.provider_field("address").is_some_and(|text| text == "private");
    let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
    loop {
        let found = api.find(task).await?;
        let gone = |why: &str| Fault::gone(format!("the instance is gone: {why}"));
        match found {
            None if began.elapsed() > UNKNOWN_MAX => return Err(gone("the cloud does not know it")),
            None => {}
            Some(instance) => match instance.instance_state.name.as_str() {
                "running" => {
                    if let Some(addresses) = instance.addresses(is_private) {
                        return Ok(addresses);
                    }
                }
                "shutting-down" => return Err(gone(instance.why())),
                state @ ("stopping" | "stopped") => {
                    let text = format!("the instance is {state}: {}", instance.why());
                    return Err(Fault { is_passing: false, ..Fault::failed(text) });
                }
                _ => {}
            },
        }
        if began.elapsed() > RUN_MAX {
            let seconds = RUN_MAX.as_secs();
            return Err(Fault::failed(format!("the instance does not run after {seconds} s")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Ends it and waits until it is gone; one that never was is gone already.
async fn delete(task: &Task) -> Result<Report, Fault> {
    let api = Api::of(task)?;
    let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
    let mut is_told = false;
    loop {
        let Some(instance) = api.find(task).await? else { return Ok(Report::default()) };
        if !is_told {
            let which = vec![("InstanceId.1".to_owned(), instance.instance_id.clone())];
            match api.ask("TerminateInstances", which).await {
                Err(denied) if denied.code == "InvalidInstanceID.NotFound" => return Ok(Report::default()),
                told => drop(told?),
            }
            is_told = true;
            continue;
        }
        if began.elapsed() > GONE_MAX {
            let (id, seconds) = (instance.instance_id, GONE_MAX.as_secs());
            return Err(Fault::failed(format!("'{id}' is not gone after {seconds} s")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cloud_refuses_is_told_apart() {
        let body = "<Response><Errors><Error><Code>AuthFailure</Code><Message>no</Message></Error></Errors></Response>";
        let denied = Denied::of("RunInstances", 401, body);
        assert_eq!((denied.fault.status, denied.fault.is_passing), (Fault::CREDENTIALS, false));
        assert_eq!(denied.fault.message, "the cloud refuses RunInstances: no (AuthFailure)");
        let of = |code: &str, status| {
            let fault = fault(code, status, String::new());
            (fault.status, fault.is_passing)
        };
        assert_eq!(of("RequestLimitExceeded", 503), (Fault::FAILED, true));
        assert_eq!(of("VcpuLimitExceeded", 400), (Fault::FAILED, false));
        assert_eq!(of("InvalidAMIID.NotFound", 400), (Fault::INVALID, false));
        assert_eq!(of("", 502), (Fault::FAILED, true));
        assert_eq!(of("", 403), (Fault::CREDENTIALS, false));
    }

    #[test]
    fn a_machine_that_was_given_up_does_not_use_up_the_token_of_the_next() {
        let task: Task = serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "CREATE", "nodeId": "n"
        }))
        .unwrap();
        let tokens: std::collections::BTreeSet<String> =
            (0..TOKENS_MAX).map(|number| token(&task, number)).collect();
        assert_eq!(tokens.len(), TOKENS_MAX as usize);
        assert_eq!(token(&task, 1), token(&task, 1));
        let said = format!("<Response><Errors><Error><Code>{USED_UP}</Code></Error></Errors></Response>");
        assert_eq!(Denied::of("RunInstances", 400, &said).code, USED_UP);
    }

    #[test]
    fn answers_are_read() {
        let text = "<DescribeInstancesResponse xmlns=\"x\"><requestId>r</requestId><reservationSet><item><instancesSet><item>\
            <instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState><ipAddress/>\
            <privateIpAddress>10.0.0.7</privateIpAddress></item></instancesSet></item></reservationSet></DescribeInstancesResponse>";
        let described: Described = quick_xml::de::from_str(text).unwrap();
        let instance = &described.reservation_set.item[0].instances_set.item[0];
        let address = "10.0.0.7".to_owned();
        assert_eq!(instance.addresses(false), Some((address.clone(), address)));
        let none: Described = quick_xml::de::from_str(
            "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>",
        )
        .unwrap();
        assert!(none.reservation_set.item.is_empty());
    }
}
