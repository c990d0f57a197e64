"""Other hosts on this machine: namespaces of their own for the name, processes, network and mounts."""

from __future__ import annotations

import shutil
import subprocess

from tests.conftest import absent

UNSHARE = ("unshare", "--uts", "--pid", "--net", "--mount", "--fork", "--kill-child")


def require_hosts() -> None:
    """Skip the test where namespaces may not be made; fail it where everything has to be here."""
    if shutil.which(UNSHARE[0]) is None or subprocess.run(
        [*UNSHARE, "true"], capture_output=True, check=False
    ).returncode:
        absent("the right to make namespaces (unshare, as root)")
