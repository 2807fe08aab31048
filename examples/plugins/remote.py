"""What both programs need: the question, the answer, and commands on a machine."""

import json
import os
import subprocess
import sys
import tempfile

CREDENTIALS = 201  # The account is wrong; nothing was made, and nothing is tried again.
INVALID = 400  # The task makes no sense; nothing is tried again.
FAILED = 1  # It was tried and failed; it may go well later.
GONE = 410  # There was a machine, and it is gone for good.

LOGIN_MAX_S = 10
COMMAND_MAX_S = 300


class Fault(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def serve(verbs):
    """Reads the question, does its verb, and writes the answer. Standard output is for the answer alone."""
    question = json.load(sys.stdin)
    try:
        act = verbs.get(question["verb"])
        if act is None:
            raise Fault(INVALID, f"this plugin does not know the verb '{question['verb']}'")
        with tempfile.TemporaryDirectory() as folder:
            answer = {"status": 0, **(act(question["task"], folder) or {})}
    except Fault as fault:
        answer = {"status": fault.status, "message": str(fault)}
    json.dump(answer, sys.stdout)


def private(folder, name, text):
    """A file that only we can read: keys are in memory and here, and go with the folder."""
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text.rstrip("\n") + "\n")
    return path


def run(folder, place, key, known, line, text=""):
    """Runs a line on the machine; what it printed. `known` is the only host key that is accepted."""
    user, address, port = place
    name = address if port == 22 else f"[{address}]:{port}"
    options = {
        "BatchMode": "yes", "IdentitiesOnly": "yes", "IdentityAgent": "none", "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": private(folder, "known", f"{name} {known}"), "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": str(LOGIN_MAX_S), "ServerAliveInterval": "5", "LogLevel": "ERROR",
    }
    words = ["ssh", "-F", "none", "-p", str(port), "-i", private(folder, "key", key)]
    for option, value in options.items():
        words += ["-o", f"{option}={value}"]
    words += [f"{user}@{address}", line]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=COMMAND_MAX_S)
    sys.stderr.write(done.stderr)
    if done.returncode == 255 and "Permission denied" in done.stderr:
        raise Fault(CREDENTIALS, f"{address} does not let '{user}' in with this key")
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
        raise Fault(FAILED, f"{address}: {reason[0]}")
    return done.stdout
