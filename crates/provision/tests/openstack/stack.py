"""An OpenStack on loopback: Keystone, Placement, Glance, Neutron and Nova as they are released, on SQLite.

Nova runs with its own fake hypervisor and Neutron with a driver that binds ports to nothing, so servers have all but a
machine behind them. Their addresses are of loopback's network.

  stack.py prepare FOLDER           databases and keys, once
  stack.py serve FOLDER             serves a copy of them until standard input ends; answers one line a line
  stack.py role NAME FOLDER SOCKET  one of the services
"""
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

VENV = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
# Each with the type and the path of its entry in the catalogue.
ROLES = {
    'keystone': ('identity', '/v3'),
    'placement': ('placement', ''),
    'glance': ('image', ''),
    'neutron': ('network', ''),
    'nova': ('compute', '/v2.1'),
}
FOLDERS = ['fernet', 'receipts', 'credential', 'images', 'staging', 'tasks', 'lock', 'instances']
# SQLite may say that it is locked; that is an error of the service then.
TRIES = 5
PASSWORD = 'of the administrator'
# Writers wait for each other.
SQLITE = 'sqlite:///{}.db?timeout=60'

COMMON = '''[DEFAULT]
use_stderr = false
log_file = {at}/{name}.log
transport_url = fake://
state_path = {at}
[oslo_concurrency]
lock_path = {at}/lock
[keystone_authtoken]
{account}
token_cache_time = {cache}
'''
CONFIGS = {
    'keystone': '''[fernet_tokens]
key_repository = {at}/fernet
[fernet_receipts]
key_repository = {at}/receipts
[credential]
key_repository = {at}/credential
[identity]
password_hash_rounds = 4
''',
    'placement': '''[placement_database]
connection = {database}
sqlite_synchronous = false
''',
    'glance': '''[DEFAULT]
enabled_backends = one:file
[glance_store]
default_backend = one
[one]
filesystem_store_datadir = {at}/images
[os_glance_staging_store]
filesystem_store_datadir = {at}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {at}/tasks
[paste_deploy]
flavor = keystone
config_file = {venv}/etc/glance/glance-api-paste.ini
''',
    'neutron': '''[DEFAULT]
core_plugin = ml2
service_plugins = router
api_paste_config = {venv}/etc/neutron/api-paste.ini
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = loopback
''',
    'nova': '''[DEFAULT]
host = one
compute_driver = fake.FakeDriver
vif_plugging_is_fatal = false
vif_plugging_timeout = 0
[api_database]
connection = {api}
sqlite_synchronous = false
[placement]
{account}
[neutron]
{account}
[glance]
{account}
[service_user]
{account}
send_service_user_token = true
[filter_scheduler]
track_instance_changes = false
''',
}
ACCOUNT = '''auth_url = {url}
auth_type = password
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
region_name = RegionOne'''

DRIVER = '''from neutron_lib.plugins.ml2 import api


class Driver(api.MechanismDriver):
    def initialize(self):
        pass

    def bind_port(self, context):
        segment = context.segments_to_bind[0]['id']
        context.set_binding(segment, 'ovs', {'port_filter': False}, status='ACTIVE')
'''


def url(ports, name):
    return f'http://127.0.0.1:{ports[name]}{ROLES[name][1]}'


def configure(at, ports):
    account = ACCOUNT.format(url=url(ports, 'keystone'), password=PASSWORD)
    for name, text in CONFIGS.items():
        words = {'at': at, 'venv': VENV, 'account': account, 'name': name, 'api': SQLITE.format('nova_api')}
        words['database'] = SQLITE.format(name)
        # What is revoked Nova refuses at once; the others are not asked about it.
        words['cache'] = -1 if name == 'nova' else 300
        database = f"[database]\nconnection = {words['database']}\nsqlite_synchronous = false\n"
        with open(f'{at}/{name}.conf', 'w') as file:
            file.write((COMMON + text).format(**words) + database)
    shutil.copy(f'{at}/glance.conf', f'{at}/glance-api.conf')
    for name in FOLDERS:
        os.makedirs(f'{at}/{name}', mode=0o700, exist_ok=True)


def prepare(at):
    os.makedirs(at, exist_ok=True)
    configure(at, {name: 1 for name in ROLES})

    def run(program, *words):
        config = program.split('-')[0]
        command = [f'{VENV}/bin/{program}', '--config-file', f'{at}/{config}.conf', *words]
        done = subprocess.run(command, cwd=at, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f'{program} {words}: {done.stdout[-3000:]}')

    run('keystone-manage', 'db_sync')
    for keys in ['fernet_setup', 'credential_setup']:
        run('keystone-manage', keys, '--keystone-user', 'root', '--keystone-group', 'root')
    run('keystone-manage', 'bootstrap', '--bootstrap-password', PASSWORD)
    run('placement-manage', 'db', 'sync')
    run('glance-manage', 'db_sync')
    # Neutron's migrations do not know SQLite; its own tests make the tables like this.
    tables = f'''import sqlalchemy
from neutron.db.migration.models import head
head.get_metadata().create_all(sqlalchemy.create_engine("{SQLITE.format('neutron')}"))'''
    subprocess.run([sys.executable, '-W', 'ignore', '-c', tables], cwd=at, check=True)
    run('nova-manage', 'api_db', 'sync')
    run('nova-manage', 'cell_v2', 'map_cell0', '--database_connection', SQLITE.format('nova_cell0'))
    run('nova-manage', 'db', 'sync')
    cell = ['--transport-url', 'fake://', '--database_connection', SQLITE.format('nova')]
    run('nova-manage', 'cell_v2', 'create_cell', '--name', 'one', *cell)
    # Who reads and who writes do not wait for each other.
    for name in os.listdir(at):
        if name.endswith('.db'):
            sqlite3.connect(f'{at}/{name}').execute('PRAGMA journal_mode=WAL')


def retry_locked():
    # A transaction that read and then writes is refused at once when another wrote in between, however long it
    # would wait. The services try again when it is called a deadlock.
    from oslo_db import exception
    from oslo_db.sqlalchemy import exc_filters
    from sqlalchemy import exc

    @exc_filters.filters('sqlite', exc.OperationalError, r'.*database is locked')
    def locked(error, match, engine_name, is_disconnect):
        raise exception.DBDeadlock(error)


def application(name, at):
    retry_locked()
    # The services read the words of the command line as theirs.
    sys.argv = [name]
    if name == 'keystone':
        os.environ['OS_KEYSTONE_CONFIG_FILES'] = f'{at}/keystone.conf'
        from keystone.wsgi.api import application as found
    elif name == 'placement':
        os.environ['OS_PLACEMENT_CONFIG_DIR'] = at
        from placement.wsgi.api import application as found
    elif name == 'glance':
        os.environ['OS_GLANCE_CONFIG_DIR'] = at
        from glance.common.wsgi_app import init_app
        found = init_app()
    elif name == 'neutron':
        driver(at)
        sys.argv = ['neutron-api', '--config-file', f'{at}/neutron.conf']
        from neutron.wsgi.api import application as found
    else:
        found = nova(at)
    return found


def driver(at):
    """Neutron finds its drivers by what is installed."""
    info = f'{at}/driver/loopback-1.dist-info'
    os.makedirs(info)
    files = {
        f'{at}/driver/loopback_driver.py': DRIVER,
        f'{info}/METADATA': 'Metadata-Version: 2.1\nName: loopback\nVersion: 1\n',
        f'{info}/entry_points.txt': '[neutron.ml2.mechanism_drivers]\nloopback = loopback_driver:Driver\n',
    }
    for path, text in files.items():
        with open(path, 'w') as file:
            file.write(text)
    sys.path.insert(0, f'{at}/driver')


def nova(at):
    """All of Nova in one process, because its parts talk through memory."""
    os.environ['OS_NOVA_CONFIG_FILES'] = f'{VENV}/etc/nova/api-paste.ini;{at}/nova.conf'
    from nova.wsgi.osapi_compute import application as found
    import os_vif
    from nova import context, objects, service
    from nova.compute import rpcapi
    from nova.objects import host_mapping
    os_vif.initialize()
    objects.Service.enable_min_version_cache()
    parts = {'conductor': 'conductor', 'scheduler': 'scheduler', 'compute': rpcapi.RPC_TOPIC}
    for part, topic in parts.items():
        service.Service.create(binary=f'nova-{part}', topic=topic).start()
    host_mapping.discover_hosts(context.get_admin_context())
    return found


def role(name, at, fd):
    import logging
    from werkzeug.serving import make_server
    logging.getLogger('werkzeug').setLevel(logging.ERROR)
    # It ends with who started it.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    make_server('127.0.0.1', 0, application(name, at), threaded=True, fd=fd).serve_forever()


class Stack:
    def __init__(self, at):
        self.at = at
        self.children = []
        self.sockets = {name: socket.create_server(('127.0.0.1', 0)) for name in ROLES}
        self.ports = {name: one.getsockname()[1] for name, one in self.sockets.items()}
        configure(at, self.ports)

    def start(self, name):
        fd = self.sockets[name].fileno()
        words = [sys.executable, '-W', 'ignore', os.path.abspath(__file__), 'role', name, self.at, str(fd)]
        child = subprocess.Popen(words, cwd=self.at, pass_fds=[fd], stdin=subprocess.PIPE, stdout=sys.stderr)
        self.children.append(child)
        # Who asks one that died is not to wait for an answer.
        self.sockets[name].close()

    def end(self):
        for child in self.children:
            child.kill()
            child.wait()

    def ask(self, method, service, path, body=None, **headers):
        import requests
        headers = {name.replace('_', '-'): value for name, value in headers.items()}
        if hasattr(self, 'token'):
            headers.setdefault('X-Auth-Token', self.token)
        data = {'data': body} if isinstance(body, bytes) else {'json': body}
        for _ in range(TRIES):
            answer = requests.request(method, url(self.ports, service) + path, headers=headers, timeout=90, **data)
            if answer.status_code != 500:
                break
        if answer.status_code >= 300:
            raise SystemExit(f'{method} {service} {path}: {answer.status_code} {answer.text}')
        return answer

    def make(self, service, path, kind, **body):
        return self.ask('POST', service, path, {kind: body}).json()[kind]

    def login(self, user, password, project):
        domain = {'id': 'default'}
        who = {'name': user, 'domain': domain, 'password': password}
        auth = {'identity': {'methods': ['password'], 'password': {'user': who}}}
        auth['scope'] = {'project': {'name': project, 'domain': domain}}
        answer = self.ask('POST', 'keystone', '/auth/tokens', {'auth': auth})
        return answer.headers['X-Subject-Token'], answer.json()['token']

    def accounts(self):
        self.token, me = self.login('admin', PASSWORD, 'admin')
        self.make('keystone', '/regions', 'region', id='RegionOne')
        for name, (kind, _) in ROLES.items():
            service = self.make('keystone', '/services', 'service', type=kind, name=name)['id']
            for interface in ['public', 'internal']:
                address = url(self.ports, name)
                self.make('keystone', '/endpoints', 'endpoint', service_id=service, interface=interface,
                          region_id='RegionOne', url=address)
        roles = {one['name']: one['id'] for one in self.ask('GET', 'keystone', '/roles').json()['roles']}

        def grant(project, user, name):
            self.ask('PUT', 'keystone', f'/projects/{project}/users/{user}/roles/{roles[name]}')

        grant(me['project']['id'], me['user']['id'], 'service')
        self.project = self.make('keystone', '/projects', 'project', name='shop')['id']
        self.password = 'a good password'
        self.user = self.make('keystone', '/users', 'user', name='banyan', password=self.password)['id']
        grant(self.project, self.user, 'member')
        token, _ = self.login('banyan', self.password, 'shop')
        path, body = f'/users/{self.user}/application_credentials', {'application_credential': {'name': 'for banyan'}}
        made = self.ask('POST', 'keystone', path, body, X_Auth_Token=token).json()['application_credential']
        return {'id': made['id'], 'secret': made['secret']}

    def things(self):
        image = {'name': 'debian-12', 'disk_format': 'raw', 'container_format': 'bare', 'visibility': 'public'}
        image = self.ask('POST', 'glance', '/v2/images', image).json()['id']
        self.ask('PUT', 'glance', f'/v2/images/{image}/file', b'no disk', Content_Type='application/octet-stream')

        def network(name, cidr, **more):
            net = self.make('neutron', '/v2.0/networks', 'network', name=name, project_id=self.project, **more)['id']
            subnet = self.make('neutron', '/v2.0/subnets', 'subnet', network_id=net, ip_version=4, cidr=cidr,
                               enable_dhcp=False, project_id=self.project)
            return net, subnet['id']

        outer, _ = network('outer', '127.78.0.0/16', **{'router:external': True})
        _, inner = network('inner', '127.77.0.0/16')
        gateway = {'network_id': outer}
        router = self.make('neutron', '/v2.0/routers', 'router', name='r', project_id=self.project,
                           external_gateway_info=gateway)['id']
        self.ask('PUT', 'neutron', f'/v2.0/routers/{router}/add_router_interface', {'subnet_id': inner})
        self.make('nova', '/flavors', 'flavor', name='m1.tiny', ram=64, vcpus=1, disk=1)
        self.make('nova', '/flavors', 'flavor', name='m1.huge', ram=64 << 20, vcpus=1, disk=1)
        # Within the quota, but more than the host has.
        self.make('nova', '/flavors', 'flavor', name='m1.wide', ram=64, vcpus=1, disk=1 << 20)
        self.make('nova', '/flavors', 'flavor', name='m1.diskless', ram=64, vcpus=1, disk=0)

    def servers(self, _):
        version = {'X_OpenStack_Nova_API_Version': '2.3'}
        found = self.ask('GET', 'nova', '/servers/detail?all_tenants=1', **version).json()['servers']
        return [{name.split(':')[-1]: value for name, value in one.items()} for one in found]

    def floatings(self, _):
        return self.ask('GET', 'neutron', '/v2.0/floatingips').json()['floatingips']

    def revoke(self, _):
        """Ends all tokens of the user."""
        self.ask('PATCH', 'keystone', f'/users/{self.user}', {'user': {'password': self.password}})
        # Tokens of the second in which that happens are refused too.
        time.sleep(1.5)
        return []

    def stranger(self, name):
        """A server of the same name that is not ours."""
        flavors = self.ask('GET', 'nova', '/flavors').json()['flavors']
        flavor = next(one['id'] for one in flavors if one['name'] == 'm1.tiny')
        image = self.ask('GET', 'glance', '/v2/images').json()['images'][0]['id']
        token, _ = self.login('banyan', self.password, 'shop')
        net = self.ask('GET', 'neutron', '/v2.0/networks?name=inner').json()['networks'][0]['id']
        body = {'server': {'name': name, 'flavorRef': flavor, 'imageRef': image, 'networks': [{'uuid': net}]}}
        return self.ask('POST', 'nova', '/servers', body, X_Auth_Token=token).json()['server']


def serve(template):
    at = tempfile.mkdtemp(prefix='openstack-')
    stack = None
    try:
        shutil.copytree(template, at, dirs_exist_ok=True)
        stack = Stack(at)
        for name in ROLES:
            if name != 'nova':
                stack.start(name)
        # Nova asks the others when it starts, and finds them in the catalogue.
        said = {'application': stack.accounts()}
        stack.start('nova')
        stack.things()
        said |= {'url': url(stack.ports, 'keystone'), 'password': stack.password}
        print(json.dumps(said), flush=True)
        for line in sys.stdin:
            words = line.split()
            print(json.dumps(getattr(stack, words[0])(*words[1:] or [''])), flush=True)
    finally:
        if stack:
            stack.end()
        if 'STACK_LOGS' in os.environ:
            shutil.copytree(at, os.environ['STACK_LOGS'], dirs_exist_ok=True)
        shutil.rmtree(at)


if __name__ == '__main__':
    match sys.argv[1:]:
        case ['prepare', at]:
            prepare(at)
        case ['serve', at]:
            serve(at)
        case ['role', name, at, fd]:
            role(name, at, int(fd))
