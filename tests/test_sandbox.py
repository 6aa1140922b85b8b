"""The sandbox: what a process in it cannot see, reach, or change. And what still works in it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nncourse
from cuda_on_cpu import emulate, program
from cuda_on_cpu.text import CudaSource
from nnclassroom.judge import sandbox
from nncourse.errors import CourseError

PACKAGE = Path(nncourse.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def there_is_one():
    if reason := sandbox.why_none():
        pytest.skip(reason)


def python(code: str, *options: str, **chosen) -> str:
    """The output of Python code in the sandbox, hiding the course."""
    words = sandbox.prefix(**{"hidden": [PACKAGE], **chosen})
    command = [*words, sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def fails(code: str, **chosen) -> str:
    """The name of the exception that the code raises there."""
    return python(f"try:\n    {code}\nexcept Exception as error:\n    print(type(error).__name__)", **chosen)


def test_python_and_its_packages_are_there():
    assert python("import numpy; print(numpy.arange(4).sum())") == "6"


def test_the_course_is_not():
    assert fails("import nncourse") == "ModuleNotFoundError"
    assert fails(f"print(open({str(PACKAGE / 'errors.py')!r}).read())") == "FileNotFoundError"


def test_only_what_is_readable_is_seen(tmp_path):
    script, submission = tmp_path / "script.py", tmp_path / "ada.py"
    script.write_text("print('ran')")
    submission.write_text("secret")
    read = f"print(open({str(submission)!r}).read())"
    assert fails(read, readable=[script]) == "FileNotFoundError"
    assert python(f"exec(open({str(script)!r}).read())", readable=[script]) == "ran"
    assert python(read, readable=[tmp_path]) == "secret"


def test_what_is_hidden_is_not_seen_within_what_is_readable(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/reference.py").write_text("secret")
    (tmp_path / "one.py").write_text("secret")
    chosen = {"readable": [tmp_path], "hidden": [tmp_path / "inner", tmp_path / "one.py"]}
    assert fails(f"open({str(tmp_path / 'inner/reference.py')!r})", **chosen) == "FileNotFoundError"
    assert fails(f"open({str(tmp_path / 'one.py')!r})", **chosen) == "PermissionError"


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/dev", "/proc/sys/kernel", sys.prefix])
def test_nothing_can_be_written(folder):
    assert fails(f"open({folder + '/nncourse_test'!r}, 'w')") in ("OSError", "PermissionError", "FileNotFoundError")


def test_settings_of_the_machine_stay():
    """Opening for writing is enough to know, and changes nothing even for root."""
    for name in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory", "user/max_user_namespaces"):
        assert fails(f"open('/proc/sys/{name}', 'r+')") in ("OSError", "PermissionError")


def test_its_tmp_is_its_own_and_small(tmp_path):
    listed = python("import os; print(os.listdir('/tmp'))")
    assert listed == "[]" or Path(sys.prefix).is_relative_to("/tmp")  # a Python that lies there is seen
    write = "open('{}', 'wb').write(bytes(64 << 20))"
    if not sandbox._knows("bwrap", "--size"):
        pytest.skip("this bubblewrap is older than 0.7 and has no --size")
    own = f"/tmp/{tmp_path.parent.name}-{os.getpid()}"  # a name that nobody else takes
    assert fails(write.format(own), temporary=16 << 20) == "OSError"
    assert fails(write.format("/dev/shm/x"), temporary=16 << 20) == "OSError"
    assert python(f"open('{own}', 'wb').write(bytes(1 << 20)); print('ok')", temporary=16 << 20) == "ok"
    assert not Path(own).exists()


def test_there_is_no_network_and_no_other_process():
    assert fails("import socket; socket.create_connection(('1.1.1.1', 53), 2)") == "OSError"
    assert python("import socket; print([name for _, name in socket.if_nameindex() if name != 'lo'])") == "[]"
    seen = python("import os; print(len([name for name in os.listdir('/proc') if name.isdigit()]))")
    assert int(seen) <= 2
    assert fails(f"import os; os.kill({os.getpid()}, 0)") == "ProcessLookupError"


def test_secrets_of_the_environment_stay_outside(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "1234")
    assert "1234" not in python("import os; print(dict(os.environ))")
    read = "import glob; print([open(path, 'rb').read() for path in glob.glob('/proc/[0-9]*/environ')])"
    assert "PATH" in python(read) and "1234" not in python(read)


def test_it_ends_with_the_process_that_started_it():
    words = [*sandbox.prefix(), "sh", "-c", "echo ready; exec sleep 1000 >/dev/null"]
    code = f"""if True:
        import os, subprocess
        child = subprocess.Popen({words!r}, stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid, flush=True)
        os._exit(0)
    """
    started = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    for _ in range(100):
        if not Path(f"/proc/{started.stdout.strip()}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("bwrap still runs")


def test_only_the_folder_that_is_put_into_the_words_can_be_written(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    words = [word.replace(sandbox.FOLDER, str(tmp_path / "a")) for word in sandbox.prefix()]
    write = [*words, sys.executable, "-c"]
    done = subprocess.run([*write, "import os; open('out', 'w').write(os.getcwd())"], cwd=tmp_path / "a", check=False)
    assert not done.returncode and (tmp_path / "a/out").read_text() == str(tmp_path / "a")
    for other in ("b/out", "out"):
        subprocess.run([*write, f"open({str(tmp_path / other)!r}, 'w')"], capture_output=True, check=False)
        assert not (tmp_path / other).exists()


def test_the_emulator_compiles_and_runs_in_it_and_its_text_reads_nothing(tmp_path, monkeypatch):
    if reason := emulate.why_not():
        pytest.skip(reason)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "secret.h").write_text("#define SECRET 1\n")
    words = sandbox.prefix(readable=program.read_in_a_sandbox(), hidden=[PACKAGE])
    text = 'extern "C" __global__ void add(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] += 1; }\n'
    numbers = np.zeros(4, np.float32)
    one = (1, 1, 1)
    emulate.run(CudaSource(text, "add.cu"), "add", one, (32, 1, 1), [numbers, np.int32(4)], sandbox=words)
    assert numbers.tolist() == [1, 1, 1, 1]
    reading = CudaSource(f'#include "{tmp_path / "secret.h"}"\n{text}', "add.cu")
    emulate.run(reading, "add", one, (32, 1, 1), [numbers, np.int32(4)])  # it compiles where the file is seen
    other = CudaSource(reading.text + "// other\n", "add.cu")
    with pytest.raises(CourseError):
        emulate.run(other, "add", one, (32, 1, 1), [numbers, np.int32(4)], sandbox=words)


def test_why_there_is_none_says_what_to_do(tmp_path, monkeypatch):
    assert "apt install bubblewrap" in sandbox.why_none("bwrap_that_is_not_there")
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    reason = sandbox.why_none(str(broken))
    assert "No permissions" in reason and "user namespaces" in reason and "\n" not in reason


def test_packages_that_only_pythonpath_names_are_there_too_and_the_present_folder_is_not(tmp_path, monkeypatch):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/extra_package.py").write_text("VALUE = 7\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/secret.py").write_text("VALUE = 8\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.syspath_prepend(str(tmp_path / "here"))  # as `python -m` does with the present folder
    monkeypatch.chdir(tmp_path / "here")
    assert python("import extra_package; print(extra_package.VALUE)") == "7"
    assert fails("import secret") == "ModuleNotFoundError"
    assert fails(f"open({str(tmp_path / 'here/secret.py')!r})") == "FileNotFoundError"
