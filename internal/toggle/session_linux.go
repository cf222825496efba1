package toggle

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The fields of /proc/PID/stat that are read, counted from the one after the
// process's name.
const (
	parentField  = 1
	sessionField = 3
	startField   = 19
)

// CurrentSession returns the name of the session of this process: see SessionOf.
func CurrentSession() (string, error) { return SessionOf(os.Getpid()) }

// SessionOf returns a name for the session of a process. It consists of the pid
// and start time of the session's leader, usually a shell in a terminal, and the
// machine's boot. So no other session ever has the same name.
func SessionOf(pid int) (string, error) {
	leader, err := unix.Getsid(pid)
	if err == nil && leader == 0 {
		leader, err = outermost(pid)
	}
	if err != nil {
		return "", fmt.Errorf("the session of process %d: %w", pid, err)
	}
	return sessionKey(leader)
}

// outermost returns a substitute for a session leader outside this pid namespace, which
// the kernel reports as 0 (for example a shell that was started in a container from
// outside). It is the farthest ancestor that is in this pid namespace and in the
// session.
func outermost(pid int) (int, error) {
	for {
		fields, err := statOf(pid)
		if err != nil {
			return 0, err
		}
		parent, err := strconv.Atoi(fields[parentField])
		if err != nil || parent == 0 {
			return pid, err
		}
		above, err := statOf(parent)
		if err != nil {
			return 0, err
		}
		if above[sessionField] != "0" {
			return pid, nil
		}
		pid = parent
	}
}

func sessionKey(leader int) (string, error) {
	fields, err := statOf(leader)
	if err != nil {
		return "", fmt.Errorf("the leader %d of this session: %w; switch for the project instead, with --project", leader, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s %s", leader, fields[startField], strings.TrimSpace(string(boot))), nil
}

func statOf(pid int) ([]string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, err
	}
	// The name may contain anything, even a closing bracket.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= startField {
		return nil, fmt.Errorf("what /proc says of process %d is cut short", pid)
	}
	return fields, nil
}

// alive reports whether the leader of a session still runs.
func alive(key string) bool {
	number, _, _ := strings.Cut(key, " ")
	leader, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	now, err := sessionKey(leader)
	return err == nil && now == key
}
