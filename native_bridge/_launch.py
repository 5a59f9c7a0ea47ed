"""Started as a script: becomes another program, which ends with the process that started it.

Arguments: the number of a pipe that closes when that process ends, the number of a pipe for errors, a file to write
this process's id into first (a cgroup's `cgroup.procs`; empty for none), and the program with its arguments. It needs
only the standard library, so that `python -I -S` starts it in milliseconds.
"""

import os
import signal
import sys


def main() -> None:
    alive, errors, group, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    if os.fork() == 0:
        for number in (0, 1, 2, errors):
            os.close(number)
        os.read(alive, 1)
        os.killpg(0, signal.SIGKILL)  # the program, its children, and this process, which only waited
    os.close(alive)
    os.set_inheritable(errors, False)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and children inherit that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        if group:
            with open(group, "w") as procs:
                procs.write(str(os.getpid()))
        os.execvp(program[0], program)
    except OSError as error:
        os.write(errors, str(error.errno).encode())
    os._exit(127)


main()
