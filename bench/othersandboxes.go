package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The command lines below ask each peer for what cloche's default policy asks
// for, as far as the peer has it: the host read-only, one writable folder,
// secrets hidden, no network, own processes and IPC, no privileges.

// firejail's command line. It covers /tmp and /var/tmp, which would hide a
// workspace that lies there, and makes a mount of an ordinary user's home, which
// being read-only at / does not reach.
func (p peer) firejail(l *lab, j job) ([]string, error) {
	argv := []string{p.path, "--quiet", "--noprofile", "--net=none", "--private-dev", "--ipc-namespace",
		"--caps.drop=all", "--nonewprivs", "--seccomp", "--read-only=/", "--read-only=" + l.dir, "--read-write=" + j.Workspace}
	if !strings.HasPrefix(l.dir, "/tmp/") {
		argv = append(argv, "--private-tmp")
	}
	if strings.HasPrefix(l.dir, "/var/tmp/") {
		argv = append(argv, "--keep-var-tmp")
	}
	for _, s := range l.secrets() {
		argv = append(argv, "--blacklist="+s)
	}
	return append(argv, "--"), nil
}

// landrun's command line. Landlock cannot hide inside what is shown, so the
// home folder is not shown at all.
func (p peer) landrun(_ *lab, j job) ([]string, error) {
	argv := []string{p.path, "--best-effort", "--ignore-missing", "--rox", "/usr,/bin,/sbin,/lib,/lib64,/opt",
		"--ro", "/etc,/proc,/sys", "--rw", "/dev,/tmp", "--rwx", j.Workspace, "--env", "PATH", "--env", "HOME"}
	for _, v := range j.Env {
		argv = append(argv, "--env", v)
	}
	return append(argv, "--"), nil
}

// openSrt writes the settings that srt reads and has its command line, which
// takes the job as one line for a shell.
func (p peer) openSrt(_ context.Context, l *lab, j job) (*runner, error) {
	settings := map[string]any{
		"filesystem": map[string]any{"denyRead": l.secrets(), "allowWrite": []string{j.Workspace}, "denyWrite": []string{}},
		"network":    map[string]any{"allowedDomains": []string{}, "deniedDomains": []string{}},
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.dir, fmt.Sprintf("srt-%s.json", filepath.Base(j.Workspace)))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	words := make([]string, len(j.Argv))
	for i, w := range j.Argv {
		words[i] = quote(w)
	}
	argv := []string{p.path, "--settings", file, "-c", strings.Join(words, " ")}
	return command{argv: argv, env: j.environ(), dir: j.Workspace}.runner(), nil
}
