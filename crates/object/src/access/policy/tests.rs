#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::fault::Fault;
use crate::identity::{Account, Principal, Rights};

fn user(account: &str, name: &str) -> Principal {
    Principal {
        account: Account { id: account.into(), name: account.into() },
        user: name.into(),
        rights: Rights::Manage,
        operator: false,
        session: None,
    }
}

fn statement(body: &str) -> String {
    format!(r#"{{"Version":"2012-10-17","Statement":[{{{body}}}]}}"#)
}

fn policy(body: &str) -> Policy {
    Policy::parse(&statement(body), For::Bucket("b")).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn reason(text: &str) -> String {
    match Policy::parse(text, For::Bucket("b")) {
        Err(Fault::S3(code, reason)) => {
            assert_eq!(code.as_str(), "MalformedPolicy");
            reason.into_owned()
        }
        other => panic!("{text} gave {other:?}"),
    }
}

/// The verdict on `s3:GetObject` of `b/public/x`.
fn get(policy: &Policy, subject: Subject<'_>, context: &Context) -> Verdict {
    policy.verdict(&Asked { subject, action: "s3:GetObject", resource: "arn:aws:s3:::b/public/x", context })
}

/// Whether a condition on a statement for everyone holds.
fn holds(condition: &str, context: &Context) -> bool {
    let policy = policy(&format!(
        r#""Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::b/*","Condition":{condition}"#
    ));
    get(&policy, Subject::Anonymous, context) == Verdict::Allow
}

#[test]
fn principals_are_named_in_many_ways() {
    let ann = user("a1", "ann");
    let mut role = user("a1", "ann");
    role.session = Some("viewer/backup".into());
    // principal, ann, ann in a role, anonymous
    let rows = [
        (r#""*""#, true, true, true),
        (r#"{"AWS":"*"}"#, true, true, true),
        (r#"{"AWS":"arn:aws:iam::a1:root"}"#, true, true, false),
        (r#"{"AWS":"a1"}"#, true, true, false),
        (r#"{"CanonicalUser":"a1"}"#, true, true, false),
        (r#"{"AWS":"arn:aws:iam:::user/a1"}"#, true, true, false),
        (r#"{"AWS":["arn:aws:iam::zz:root","arn:aws:iam::a1:user/ann"]}"#, true, false, false),
        (r#"{"AWS":"arn:aws:iam::a1:user/some/path/ann"}"#, true, false, false),
        (r#"{"AWS":"arn:aws:iam::a1:user/bob"}"#, false, false, false),
        (r#"{"AWS":"arn:aws:iam::a2:user/ann"}"#, false, false, false),
        (r#"{"AWS":"arn:aws:iam::a1:role/viewer"}"#, false, true, false),
        (r#"{"AWS":"arn:aws:iam::a1:role/admin"}"#, false, false, false),
        (r#"{"AWS":"arn:aws:sts::a1:assumed-role/viewer/backup"}"#, false, true, false),
        (r#"{"AWS":"arn:aws:sts::a1:assumed-role/viewer/other"}"#, false, false, false),
        (r#"{"Federated":"accounts.example.com"}"#, false, false, false),
        (r#"{"Service":"logging.s3.amazonaws.com"}"#, false, false, false),
    ];
    for (principal, plain, assumed, anonymous) in rows {
        let policy = policy(&format!(
            r#""Effect":"Allow","Principal":{principal},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*""#
        ));
        let context = Context::new();
        let allows = |subject| get(&policy, subject, &context) == Verdict::Allow;
        assert_eq!(allows(Subject::User(&ann)), plain, "{principal}");
        assert_eq!(allows(Subject::User(&role)), assumed, "{principal} in a role");
        assert_eq!(allows(Subject::Anonymous), anonymous, "{principal} anonymous");
        let service = principal.contains("Service");
        assert_eq!(allows(Subject::Service("logging.s3.amazonaws.com")), service, "{principal} service");
        assert!(!principal.contains("Service") || !allows(Subject::Service("other.example.com")));
    }
}

#[test]
fn the_ends_of_an_account_are_not_its_start() {
    let policy = policy(r#""Effect":"Allow","Principal":{"AWS":"a1"},"Action":"*","Resource":"*""#);
    for account in ["a", "a11", "A1", ""] {
        let stranger = user(account, "ann");
        assert_eq!(get(&policy, Subject::User(&stranger), &Context::new()), Verdict::Silent, "{account}");
    }
}

#[test]
fn a_denial_wins_wherever_it_stands() {
    let allow = r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}"#;
    let deny = r#"{"Effect":"Deny","Principal":"*","Action":"s3:Get*","Resource":"arn:aws:s3:::b/public/*"}"#;
    for statements in [format!("{allow},{deny}"), format!("{deny},{allow}")] {
        let text = format!(r#"{{"Statement":[{statements}]}}"#);
        let policy = Policy::parse(&text, For::Bucket("b")).unwrap();
        assert_eq!(get(&policy, Subject::Anonymous, &Context::new()), Verdict::Deny);
    }
    let only = policy(r#""Effect":"Deny","Principal":"*","Action":"s3:Put*","Resource":"*""#);
    assert_eq!(
        get(&only, Subject::Anonymous, &Context::new()),
        Verdict::Silent,
        "what is not denied is not allowed"
    );
}

#[test]
fn everyone_but_some_are_denied() {
    let policy = policy(
        r#""Effect":"Deny","NotPrincipal":{"AWS":"arn:aws:iam::a1:user/ann"},"Action":"s3:*","Resource":"*""#,
    );
    let context = Context::new();
    assert_eq!(get(&policy, Subject::User(&user("a1", "ann")), &context), Verdict::Silent);
    assert_eq!(get(&policy, Subject::User(&user("a1", "bob")), &context), Verdict::Deny);
    assert_eq!(get(&policy, Subject::Anonymous, &context), Verdict::Deny);
}

#[test]
fn actions_and_resources_fit() {
    let rows = [
        (r#""Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*""#, true),
        (r#""Action":"S3:getobject","Resource":"arn:aws:s3:::b/*""#, true),
        (
            r#""Action":["s3:PutObject","s3:Get*"],"Resource":["arn:aws:s3:::b","arn:aws:s3:::b/public/?"]"#,
            true,
        ),
        (r#""Action":"s3:GetObjectVersion","Resource":"arn:aws:s3:::b/*""#, false),
        (r#""Action":"s3:GetObject","Resource":"arn:aws:s3:::b""#, false),
        (r#""Action":"s3:GetObject","Resource":"arn:aws:s3:::b/private/*""#, false),
        (r#""Action":"s3:GetObject","Resource":"arn:aws:s3:::b/PUBLIC/*""#, false),
        (r#""NotAction":"s3:Put*","Resource":"*""#, true),
        (r#""NotAction":"s3:Get*","Resource":"*""#, false),
        (r#""Action":"*","NotResource":"arn:aws:s3:::b/private/*""#, true),
        (r#""Action":"*","NotResource":"arn:aws:s3:::b/public/*""#, false),
    ];
    for (body, fits) in rows {
        let policy = policy(&format!(r#""Effect":"Allow","Principal":"*",{body}"#));
        let allowed = get(&policy, Subject::Anonymous, &Context::new()) == Verdict::Allow;
        assert_eq!(allowed, fits, "{body}");
    }
}

#[test]
fn a_home_of_ones_own() {
    let policy = policy(
        r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/${aws:username}/*""#,
    );
    let asked = |name: Option<&str>| {
        let context = name.map_or_else(Context::new, |name| Context::new().with("aws:username", name));
        get(&policy, Subject::Anonymous, &context)
    };
    assert_eq!(asked(Some("public")), Verdict::Allow);
    assert_eq!(asked(Some("*")), Verdict::Silent, "a name is not a pattern");
    assert_eq!(asked(None), Verdict::Silent);
}

#[test]
fn texts_compare() {
    let context = Context::new().with("s3:prefix", "home/ann").with("aws:UserAgent", "Tool");
    let rows = [
        (r#"{"StringEquals":{"s3:prefix":"home/ann"}}"#, true),
        (r#"{"StringEquals":{"S3:PREFIX":"home/ann"}}"#, true),
        (r#"{"StringEquals":{"s3:prefix":"Home/ann"}}"#, false),
        (r#"{"StringEquals":{"s3:prefix":"home/*"}}"#, false),
        (r#"{"StringEquals":{"s3:prefix":["x","home/ann"]}}"#, true),
        (r#"{"StringEqualsIgnoreCase":{"s3:prefix":"HOME/ANN"}}"#, true),
        (r#"{"StringNotEqualsIgnoreCase":{"s3:prefix":"HOME/ANN"}}"#, false),
        (r#"{"StringLike":{"s3:prefix":"home/*"}}"#, true),
        (r#"{"StringNotLike":{"s3:prefix":"home/*"}}"#, false),
        (r#"{"StringNotEquals":{"s3:prefix":["x","home/ann"]}}"#, false),
        (r#"{"StringNotEquals":{"s3:prefix":["x","y"]}}"#, true),
        // Several keys and operators must all hold.
        (r#"{"StringLike":{"s3:prefix":"home/*","aws:UserAgent":"Tool"}}"#, true),
        (r#"{"StringLike":{"s3:prefix":"home/*"},"StringEquals":{"aws:UserAgent":"other"}}"#, false),
        // What is not known.
        (r#"{"StringEquals":{"s3:delimiter":"/"}}"#, false),
        (r#"{"StringLike":{"s3:delimiter":"*"}}"#, false),
        (r#"{"StringNotEquals":{"s3:delimiter":"/"}}"#, true),
        (r#"{"StringEqualsIfExists":{"s3:delimiter":"/"}}"#, true),
        (r#"{"StringEqualsIfExists":{"s3:prefix":"x"}}"#, false),
        (r#"{"Null":{"s3:delimiter":"true"}}"#, true),
        (r#"{"Null":{"s3:delimiter":false}}"#, false),
        (r#"{"Null":{"s3:prefix":"false"}}"#, true),
        (r#"{"Null":{"s3:prefix":true}}"#, false),
    ];
    for (condition, held) in rows {
        assert_eq!(holds(condition, &context), held, "{condition}");
    }
}

#[test]
fn sets_compare() {
    let tags = |names: &[&str]| {
        names.iter().fold(Context::new(), |context, name| context.with("s3:RequestObjectTagKeys", *name))
    };
    let all = r#"{"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#;
    let any = r#"{"ForAnyValue:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#;
    let any_not = r#"{"ForAnyValue:StringNotEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#;
    let none = r#"{"StringNotEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#;
    // tags, all, any, any that is not, none
    let rows: [(&[&str], bool, bool, bool, bool); 5] = [
        (&["a"], true, true, false, false),
        (&["a", "b"], true, true, false, false),
        (&["a", "c"], false, true, true, false),
        (&["c"], false, false, true, true),
        (&[], true, false, false, true),
    ];
    for (names, in_all, in_any, in_any_not, in_none) in rows {
        assert_eq!(holds(all, &tags(names)), in_all, "all of {names:?}");
        assert_eq!(holds(any, &tags(names)), in_any, "any of {names:?}");
        assert_eq!(holds(any_not, &tags(names)), in_any_not, "any not of {names:?}");
        assert_eq!(holds(none, &tags(names)), in_none, "none of {names:?}");
    }
}

#[test]
fn numbers_dates_and_flags_compare() {
    let context = Context::new()
        .with("s3:max-keys", "10")
        .with("aws:CurrentTime", "2026-06-15T12:00:00Z")
        .with("aws:EpochTime", "1000")
        .with("aws:SecureTransport", "false");
    let rows = [
        (r#"{"NumericEquals":{"s3:max-keys":"10"}}"#, true),
        (r#"{"NumericEquals":{"s3:max-keys":10}}"#, true),
        (r#"{"NumericNotEquals":{"s3:max-keys":"10"}}"#, false),
        (r#"{"NumericLessThan":{"s3:max-keys":"10"}}"#, false),
        (r#"{"NumericLessThanEquals":{"s3:max-keys":"10"}}"#, true),
        (r#"{"NumericGreaterThan":{"s3:max-keys":"9.5"}}"#, true),
        (r#"{"NumericGreaterThanEquals":{"s3:max-keys":"11"}}"#, false),
        (r#"{"DateGreaterThan":{"aws:CurrentTime":"2026-06-15T11:59:59Z"}}"#, true),
        (r#"{"DateLessThan":{"aws:CurrentTime":"2026-06-16"}}"#, true),
        (r#"{"DateLessThanEquals":{"aws:CurrentTime":"2026-06-15T12:00:00Z"}}"#, true),
        (r#"{"DateEquals":{"aws:EpochTime":"1970-01-01T00:16:40Z"}}"#, true),
        (r#"{"DateNotEquals":{"aws:EpochTime":"1000"}}"#, false),
        (r#"{"DateGreaterThanEquals":{"aws:CurrentTime":"2027-01-01T00:00:00+02:00"}}"#, false),
        (r#"{"Bool":{"aws:SecureTransport":"false"}}"#, true),
        (r#"{"Bool":{"aws:SecureTransport":true}}"#, false),
        (r#"{"BoolIfExists":{"aws:SecureTransport":"true"}}"#, false),
    ];
    for (condition, held) in rows {
        assert_eq!(holds(condition, &context), held, "{condition}");
    }
    let odd = Context::new().with("s3:max-keys", "many");
    assert!(!holds(r#"{"NumericLessThan":{"s3:max-keys":"10"}}"#, &odd));
}

#[test]
fn addresses_compare() {
    let rows = [
        ("10.1.2.3", r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, true),
        ("11.1.2.3", r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, false),
        ("10.1.2.3", r#"{"IpAddress":{"aws:SourceIp":["192.168.0.0/16","10.1.2.3"]}}"#, true),
        ("10.1.2.4", r#"{"IpAddress":{"aws:SourceIp":"10.1.2.3/32"}}"#, false),
        ("10.1.2.3", r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, false),
        ("11.1.2.3", r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, true),
        ("::ffff:10.1.2.3", r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}"#, true),
        ("2001:db8::1", r#"{"IpAddress":{"aws:SourceIp":"2001:db8::/32"}}"#, true),
        ("2001:db9::1", r#"{"IpAddress":{"aws:SourceIp":"2001:db8::/32"}}"#, false),
        ("2001:db8::1", r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, false),
        ("10.1.2.3", r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, true),
    ];
    for (address, condition, held) in rows {
        assert_eq!(
            holds(condition, &Context::new().with("aws:SourceIp", address)),
            held,
            "{address} {condition}"
        );
    }
    assert!(!holds(r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, &Context::new()), "an unknown address");
}

#[test]
fn arns_compare_by_part() {
    let context = Context::new().with("aws:PrincipalArn", "arn:aws:iam::a1:user/ann");
    let rows = [
        ("arn:aws:iam::a1:user/ann", true),
        ("arn:aws:iam::a1:user/*", true),
        ("arn:aws:iam::*:user/ann", true),
        ("arn:*:user/ann", false),
        ("arn:aws:iam::a2:user/*", false),
        ("*", false),
    ];
    for (pattern, held) in rows {
        for operator in ["ArnLike", "ArnEquals"] {
            let condition = format!(r#"{{"{operator}":{{"aws:PrincipalArn":"{pattern}"}}}}"#);
            assert_eq!(holds(&condition, &context), held, "{condition}");
        }
        let condition = format!(r#"{{"ArnNotLike":{{"aws:PrincipalArn":"{pattern}"}}}}"#);
        assert_eq!(holds(&condition, &context), !held, "{condition}");
    }
}

#[test]
fn tags_are_keys_of_their_own() {
    let context = Context::new().with("s3:ExistingObjectTag/security", "public");
    assert!(holds(r#"{"StringEquals":{"s3:ExistingObjectTag/security":"public"}}"#, &context));
    assert!(!holds(r#"{"StringEquals":{"s3:ExistingObjectTag/other":"public"}}"#, &context));
    assert!(!holds(r#"{"StringEquals":{"s3:RequestObjectTag/security":"public"}}"#, &context));
}

#[test]
fn what_everyone_may_is_public() {
    let rows = [
        (r#""Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"*""#, true),
        (r#""Effect":"Allow","Principal":{"AWS":["a1","*"]},"Action":"s3:ListBucket","Resource":"*""#, true),
        (r#""Effect":"Deny","Principal":"*","Action":"s3:ListBucket","Resource":"*""#, false),
        (r#""Effect":"Allow","Principal":{"AWS":"arn:aws:iam::a1:root"},"Action":"*","Resource":"*""#, false),
    ];
    for (body, public) in rows {
        assert_eq!(policy(body).is_public(), public, "{body}");
    }
    let conditions = [
        (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/32"}}"#, false),
        (r#"{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}"#, true),
        (r#"{"IpAddress":{"aws:SourceIp":["10.0.0.0/32","0.0.0.0/1"]}}"#, true),
        (r#"{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/32"}}"#, true),
        (r#"{"IpAddressIfExists":{"aws:SourceIp":"10.0.0.0/32"}}"#, true),
        (r#"{"StringEquals":{"aws:PrincipalAccount":"a1"}}"#, false),
        (r#"{"StringLike":{"aws:PrincipalAccount":"a*"}}"#, true),
        (r#"{"StringNotEquals":{"aws:PrincipalAccount":"a1"}}"#, true),
        (r#"{"ArnEquals":{"aws:PrincipalArn":"arn:aws:iam::a1:user/ann"}}"#, false),
        (r#"{"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:user/ann"}}"#, true),
        (r#"{"StringLike":{"aws:Referer":"http://example.com/"}}"#, true),
        (r#"{"StringEquals":{"s3:prefix":"public/"}}"#, true),
        (r#"{"ForAllValues:StringEquals":{"aws:PrincipalAccount":"a1"}}"#, true),
    ];
    for (condition, public) in conditions {
        let body = format!(
            r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"*","Condition":{condition}"#
        );
        assert_eq!(policy(&body).is_public(), public, "{condition}");
    }
}

#[test]
fn what_we_would_not_obey_is_refused() {
    let good = r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*""#;
    let without = |field: &str| {
        let fields: Vec<&str> = good.split(",\"").collect();
        let kept = fields.iter().filter(|text| !text.trim_start_matches('"').starts_with(field));
        kept.map(|text| format!("\"{}", text.trim_start_matches('"'))).collect::<Vec<_>>().join(",")
    };
    let with = |from: &str, to: &str| statement(&good.replace(from, to));
    let rows = [
        ("".to_owned(), "valid JSON"),
        ("[]".to_owned(), "valid JSON"),
        ("{".to_owned(), "invalid Json"),
        ("{}".to_owned(), "Missing required field Statement"),
        (r#"{"Statement":[]}"#.to_owned(), "Statement is empty"),
        (r#"{"Statement":7}"#.to_owned(), "Statement must be"),
        (r#"{"Statement":["x"]}"#.to_owned(), "must be an object"),
        (r#"{"Version":"2013","Statement":[]}"#.to_owned(), "valid version"),
        (r#"{"Verison":"2012-10-17","Statement":[]}"#.to_owned(), "Unknown field Verison"),
        (r#"{"Id":7,"Statement":[]}"#.to_owned(), "Id must be"),
        (statement(&without("Effect")), "Missing required field Effect"),
        (statement(&without("Principal")), "Missing required field Principal"),
        (statement(&without("Action")), "Missing required field Action"),
        (statement(&without("Resource")), "Missing required field Resource"),
        (with("Allow", "allow"), "Invalid effect: allow"),
        (with("\"Allow\"", "true"), "Invalid effect"),
        (with("Principal\":\"*\"", "Principal\":\"ann\""), "Invalid principal"),
        (with("Principal\":\"*\"", "Principal\":{}"), "Invalid principal"),
        (with("Principal\":\"*\"", "Principal\":{\"AWS\":\"arn:aws:iam::a1:group/x\"}"), "Invalid principal"),
        (with("Principal\":\"*\"", "Principal\":{\"AWS\":\"arn:aws:iam::a1:user/\"}"), "Invalid principal"),
        (with("Principal\":\"*\"", "Principal\":{\"AWS\":\"arn:aws:iam::*:root*\"}"), "Invalid principal"),
        (with("Principal\":\"*\"", "Principal\":{\"Who\":\"x\"}"), "Invalid principal"),
        (with("Principal", "NotPrincipal"), "NotPrincipal is not allowed"),
        (with("s3:GetObject", "ec2:RunInstances"), "invalid action"),
        (with("s3:GetObject", "s3:"), "invalid action"),
        (with("\"s3:GetObject\"", "[]"), "Action is empty"),
        (with("\"s3:GetObject\"", "{}"), "Action must be"),
        (with("arn:aws:s3:::b/*", "arn:aws:s3:::other/*"), "invalid resource"),
        (with("arn:aws:s3:::b/*", "b/*"), "invalid resource"),
        (with("arn:aws:s3:::b/*", "arn:aws:s3:::"), "invalid resource"),
        (statement(&format!("{good},\"Sid\":7")), "Sid must be"),
        (statement(&format!("{good},\"NotAction\":\"*\"")), "exclude each other"),
        (statement(&format!("{good},\"Extra\":\"*\"")), "Unknown field Extra"),
        (statement(&format!("{good},\"Condition\":[]")), "Condition must be"),
        (statement(&format!("{good},\"Condition\":{{\"StringEquals\":\"x\"}}")), "must be an object"),
    ];
    for (text, part) in rows {
        let reason = reason(&text);
        assert!(reason.contains(part), "{text}\n  gave {reason:?}, not {part:?}");
    }
    let conditions = [
        (r#"{"StringSame":{"s3:prefix":"x"}}"#, "Invalid Condition type : StringSame"),
        (r#"{"ForSome:StringEquals":{"s3:prefix":"x"}}"#, "Invalid Condition type"),
        (r#"{"NullIfExists":{"s3:prefix":"true"}}"#, "Invalid Condition type"),
        (r#"{"StringEquals":{"s3:unheard":"x"}}"#, "invalid condition key: s3:unheard"),
        (r#"{"StringEquals":{"s3:ExistingObjectTag/":"x"}}"#, "invalid condition key"),
        (r#"{"StringEquals":{"s3:prefix":[]}}"#, "no values"),
        (r#"{"NumericEquals":{"s3:max-keys":"ten"}}"#, "Invalid value"),
        (r#"{"DateEquals":{"aws:CurrentTime":"soon"}}"#, "Invalid value"),
        (r#"{"Bool":{"aws:SecureTransport":"yes"}}"#, "Invalid value"),
        (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}}"#, "Invalid value"),
        (r#"{"IpAddress":{"aws:SourceIp":"example.com"}}"#, "Invalid value"),
    ];
    for (condition, part) in conditions {
        let reason = reason(&statement(&format!("{good},\"Condition\":{condition}")));
        assert!(reason.contains(part), "{condition} gave {reason:?}");
    }
    assert!(reason(&format!("{{{}}}", " ".repeat(SIZE_MAX))).contains("20 KB"));
    assert!(reason(&format!("{{\"Statement\":{}", "[".repeat(10_000))).contains("invalid Json"));
}

#[test]
fn a_statement_may_stand_alone() {
    let text = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}}"#;
    let policy = Policy::parse(text, For::Bucket("b")).unwrap();
    assert_eq!(get(&policy, Subject::Anonymous, &Context::new()), Verdict::Allow);
}

#[test]
fn a_session_is_narrowed_for_its_holder() {
    let text = r#"{"Statement":{"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::any/*"}}"#;
    let policy = Arc::new(Policy::parse(text, For::Session).unwrap());
    let ann = user("a1", "ann");
    let asked = |resource| {
        let context = &Context::new();
        policy.verdict(&Asked { subject: Subject::User(&ann), action: "s3:GetObject", resource, context })
    };
    assert_eq!(asked("arn:aws:s3:::any/x"), Verdict::Allow);
    assert_eq!(asked("arn:aws:s3:::other/x"), Verdict::Silent);
    let named = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}}"#;
    assert!(Policy::parse(named, For::Session).is_err());
}

#[test]
fn a_kept_policy_that_cannot_be_read_denies() {
    let policy = Policy::kept("{\"Statement\":[]}");
    assert_eq!(get(&policy, Subject::User(&user("a1", "ann")), &Context::new()), Verdict::Deny);
    assert!(!policy.is_public());
}

#[test]
fn typos_are_told() {
    let with = |fields: &str| {
        reason(&statement(&format!(
            r#""Effect":"Allow","Principal":"*","Resource":"arn:aws:s3:::b/*",{fields}"#
        )))
    };
    assert_eq!(with(r#""Action":"s3:GetObjekt""#), "Policy has invalid action: s3:GetObjekt");
    assert_eq!(with(r#""NotAction":["s3:GetObject","s3:Putt*"]"#), "Policy has invalid action: s3:Putt*");
    assert!(with(r#""Action":"s3:GetObject","Action":"s3:PutObject""#).contains("'Action' stands twice"));
    let nested = r#""Action":"s3:*","Condition":{"StringEquals":{"aws:userid":"a","aws:userid":"b"}}"#;
    assert!(with(nested).contains("'aws:userid' stands twice"));
    // Nobody is shut out by what was kept before.
    let kept = statement(
        r#""Effect":"Allow","Principal":"*","Resource":"*","Action":["s3:GetObjekt","s3:GetObject"]"#,
    );
    assert_eq!(get(&Policy::kept(&kept), Subject::Anonymous, &Context::new()), Verdict::Allow);
}
