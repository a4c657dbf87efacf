"""Runs untrusted Python and commands: own folder, no network, limits, nothing left behind.

    with Sandbox() as sandbox:
        workspace = sandbox.workspace()
        workspace.write("hello.py", "print('hello')")
        result = sandbox.run_python("import hello", workspace)      # RunResult(exit_code=0, output='hello\\n', …)
        result = sandbox.run_command(["grep", "-rn", "hello", "."], workspace)

A warm interpreter is started once and forks for every run, so a run costs about a millisecond of CPU. Limits are set in
the fork. Every run has a wall-clock limit, and when it ends everything that it started is killed.

Levels (`Sandbox.level`), the best that works here is taken:

**bubblewrap** (the `bwrap` program is installed and works). The warm interpreter lives in its own mount, process,
network, IPC and host-name spaces: read-only /usr, /lib, /bin, /etc and the Python installation, nothing else of the
machine; private /tmp; no network but an unconfigured loopback.
Does not stop: reading /usr and /etc; attacks on the kernel itself (there is no system call filter); using up to
`processes` x `memory_bytes` of memory (there is no cgroup); filling the workspace up to `disk_bytes` plus what is
written within the quarter of a second between two looks at it; learning the time, CPU model and kernel version.

**limits** (everywhere else). The same warm interpreter with process limits (CPU, address space, file size, open files,
processes), own session, scrubbed environment. Root changes to an unprivileged user. Where the kernel allows it (root,
or unprivileged user namespaces) it also takes own network, process and IPC spaces, remounts the system read-only with
private /tmp, /var/tmp and /dev/shm, and hides every top folder that is not the system's (/home, /root, /srv, …).
Does not stop: all of the above; reading /var; and what `Sandbox.gaps` lists for this machine, out of
    "network"     sockets reach the network (no network namespace)
    "signals"     code of the same user can be signalled (no process space and no own user)
    "files"       every file that the user may read or write is open to the code (no private mounts)
    "processes"   the process limit does not bind (root that may not change to another user)

Not shared between threads. After a fork of the client process, make a new one.
"""

from __future__ import annotations

from pipelines.synthesis.sandbox.client import Limits, RunResult, Sandbox
from pipelines.synthesis.sandbox.workspace import Workspace, WorkspaceError

__all__ = ["Limits", "RunResult", "Sandbox", "Workspace", "WorkspaceError"]
