package toggle

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// startField is the start time of a process in /proc/PID/stat, counted from the
// field after its name.
const startField = 19

// CurrentSession names the session of this process: its leader, usually a shell
// in a terminal, by its number, its start, and the machine's boot, so that
// nothing is carried over to another one.
func CurrentSession() (string, error) {
	leader, err := unix.Getsid(0)
	if err != nil {
		return "", fmt.Errorf("the session of this process: %w", err)
	}
	return sessionKey(leader)
}

func sessionKey(leader int) (string, error) {
	start, err := startOf(leader)
	if err != nil {
		return "", fmt.Errorf("the leader %d of this session: %w; switch for the project instead, with --project", leader, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %s %s", leader, start, strings.TrimSpace(string(boot))), nil
}

func startOf(pid int) (string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The name may hold anything, a closing bracket too.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) <= startField {
		return "", errors.New("its start is not known")
	}
	return fields[startField], nil
}

// alive reports whether a session's leader still runs.
func alive(key string) bool {
	number, _, _ := strings.Cut(key, " ")
	leader, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	now, err := sessionKey(leader)
	return err == nil && now == key
}
