//! Instances have addresses: the host and the neighbours reach them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::support::*;

const SERVER: &str = "mkdir -p /www; echo from $(hostname) > /www/page; exec httpd -f -p 80 -h /www";

fn address(cloud: &Cloud, name: &str) -> IpAddr {
    cloud.get(name)["address"].as_str().unwrap().parse().unwrap()
}

fn fetch(address: IpAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, 80), PATIENCE)?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn the_host_and_neighbours_reach_an_instance() {
    let cloud = Cloud::shared();
    let server = cloud.create("server", &["--health-tcp", "80", "--health-interval", "100ms"], SERVER);
    assert_eq!(server["health"], "healthy", "it was not waited for: {server:#}");
    cloud.create("asker", &[], "sleep 100000");
    let (here, there) = (address(&cloud, "asker"), address(&cloud, "server"));
    assert_ne!(here, there);
    says(&fetch(there).unwrap(), &["200 OK", "from server"]);
    let output = cloud.exec("asker", &format!("wget -q -O - http://{there}/page"));
    assert_eq!(text(&output.stdout), "from server\n", "{}", text(&output.stderr));
    let shown = text(&cloud.exec("asker", "ip -4 addr show dev eth0; hostname; cat /etc/hosts").stdout);
    says(&shown, &[&here.to_string(), "asker"]);
    let stats = cloud.json(&["instance", "stats", "server"]);
    assert!(stats[0]["net_received_bytes"].as_u64().unwrap() > 0, "{stats:#}");
    cloud.good(&["instance", "restart", "server"]);
    assert_eq!(address(&cloud, "server"), there, "a restart changed the address");
    says(&fetch(there).unwrap(), &["from server"]);
    cloud.good(&["instance", "delete", "server", "asker"]);
}
