package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/ownfile"
)

// An override is a setting that is above one that was installed.
type override struct {
	file     string
	path     []string
	harmless string // the value that changes nothing, as JSON
	comments bool
}

// An override without a path is a file that counts if it is there and not cloche's, or, if
// harmless is set, if it has that word.

// Problems says why what was installed is not in force in a project: the program that is
// called is another, an entry was changed, a project's settings are above it, or the agent does not trust it.
func (a *Agent) Problems(installed []Record, p *Places) []string {
	var out []string
	say := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	managed := false
	for i := range installed {
		r := &installed[i]
		managed = managed || r.Scope == System
		if info, err := os.Stat(r.Cloche); err != nil || info.Mode()&0o111 == 0 {
			say("%s is not a program any more: install again", r.Cloche)
		} else if own, err := os.Stat(p.Cloche); err != nil || !os.SameFile(info, own) {
			say("it calls %s, and this is %s: install again with the one that you want", r.Cloche, p.Cloche)
		}
		if err := r.check(); err != nil {
			say("%s: %v", r.File, err)
		}
		for _, o := range a.beside {
			if why := o.check(filepath.Join(filepath.Dir(r.File), o.file), installed); why != "" {
				say("%s", why)
			}
		}
		if a.Name == "codex" && r.Edits != nil {
			if err := codexTrusts(r, p); err != nil {
				say("%v", err)
			}
		}
	}
	if managed && a.managed || p.Project == "" {
		return out
	}
	for _, dir := range p.folders() {
		for _, o := range a.overrides {
			file := filepath.Join(dir, o.file)
			if containsAbove(installed, file) {
				continue
			}
			if why := o.check(file, installed); why != "" {
				say("%s", why)
			}
		}
	}
	return out
}

// folders are those that an agent may read a project's settings in: from the project down to the one that it is started in.
func (p *Places) folders() []string {
	out := []string{p.Project}
	if rel, err := filepath.Rel(p.Project, p.Dir); err == nil && rel != "." && filepath.IsLocal(rel) {
		dir := p.Project
		for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
			dir = filepath.Join(dir, name)
			out = append(out, dir)
		}
	}
	return out
}

// containsAbove reports whether a file of the project that was installed is above another one:
// Claude Code's settings.local.json is above its settings.json.
func containsAbove(installed []Record, file string) bool {
	return filepath.Base(file) == "settings.json" && containsFile(installed, filepath.Join(filepath.Dir(file), "settings.local.json"))
}

func containsFile(installed []Record, file string) bool {
	for i := range installed {
		if installed[i].File == file {
			return true
		}
	}
	return false
}

func (o *override) check(file string, installed []Record) string {
	if o.path == nil {
		return o.checkFile(file, installed)
	}
	c, err := ownfile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	name := strings.Join(o.path, ".")
	if err != nil {
		return fmt.Sprintf("%s cannot be read, and may set %s: %v", file, name, err)
	}
	value, err := lookup(c.Data, o.comments, o.path)
	if err != nil {
		return fmt.Sprintf("%s: %v", file, err)
	}
	if value == "" || value == o.harmless || slices.ContainsFunc(installed, func(r Record) bool { return value == jsonText(r.File) || value == jsonText(r.Cloche) }) {
		return ""
	}
	return fmt.Sprintf("%s sets %s to %s, which is above what was installed", file, name, value)
}

func (o *override) checkFile(file string, installed []Record) string {
	if info, err := os.Stat(file); err != nil {
		return ""
	} else if info.IsDir() {
		entries, _ := os.ReadDir(file)
		for _, e := range entries {
			if why := o.checkFile(filepath.Join(file, e.Name()), installed); why != "" {
				return why
			}
		}
		return ""
	}
	if o.harmless != "" {
		c, err := ownfile.Read(file)
		// A key of TOML may have the word with its letters as numbers.
		if err == nil && !bytes.Contains(c.Data, []byte(o.harmless)) && !bytes.Contains(c.Data, []byte(`\`)) {
			return ""
		}
	}
	if containsFile(installed, file) {
		return ""
	}
	return file + " is the project's own, and can undo this, or have the agent run anything outside"
}

// check reports whether the entries are as they were written.
func (r *Record) check() error {
	c, err := ownfile.Read(r.File)
	if err != nil {
		return errors.New("cannot be read: install again")
	}
	if r.Edits == nil {
		if ownfile.Sum(c.Data) != r.Sum {
			return errors.New("was changed since: install again")
		}
		return nil
	}
	for i := range r.Edits {
		e := &r.Edits[i]
		if has, err := e.in(c.Data, r.Comments); err != nil {
			return err
		} else if !has {
			return fmt.Errorf("%s is not as cloche wrote it: install again", strings.Join(e.Path, "."))
		}
	}
	if off, err := lookup(c.Data, r.Comments, []string{"disableAllHooks"}); err == nil && off == "true" {
		return errors.New("disableAllHooks is true: remove it")
	}
	return nil
}

// codexTrusts reports whether the user's config.toml has the hash of the hook, which Codex's dialog
// /hooks writes. Codex skips a hook without it.
func codexTrusts(r *Record, p *Places) error {
	untrusted := errors.New("the hook is not trusted yet, and Codex skips it: start codex, type /hooks, and trust it")
	c, err := ownfile.Read(r.File)
	if err != nil {
		return untrusted
	}
	var file struct {
		Hooks struct {
			PreToolUse []struct {
				Matcher string           `json:"matcher"`
				Hooks   []map[string]any `json:"hooks"`
			} `json:"PreToolUse"`
		} `json:"hooks"`
	}
	if err := json.Unmarshal(c.Data, &file); err != nil {
		return err
	}
	config, err := ownfile.Read(filepath.Join(p.folder("CODEX_HOME", ".codex"), "config.toml"))
	if err != nil {
		return untrusted
	}
	want := jsonText(r.Edits[0].Value)
	for i, group := range file.Hooks.PreToolUse {
		if len(group.Hooks) != 1 || jsonText(object{"matcher": group.Matcher, "hooks": group.Hooks}) != want {
			continue
		}
		hook := group.Hooks[0]
		sum := sha256.Sum256([]byte(jsonText(object{"event_name": "pre_tool_use", "matcher": group.Matcher,
			"hooks": []any{object{"type": "command", "command": hook["command"], "timeout": hook["timeout"], "async": false}}})))
		key := fmt.Sprintf("%s:pre_tool_use:%d:0", r.File, i)
		if tomlHas(config.Data, key, "sha256:"+hex.EncodeToString(sum[:])) {
			return nil
		}
	}
	return untrusted
}

// tomlHas reports whether the table of a hook has the hash, and does not switch the hook off. It reads
// the lines that Codex writes, and no other form of TOML: then the hook counts as not trusted.
func tomlHas(config []byte, key, hash string) bool {
	in, trusted := false, false
	for line := range bytes.Lines(config) {
		text := strings.TrimSpace(string(line))
		switch {
		case strings.HasPrefix(text, "["):
			in = text == "[hooks.state."+jsonText(key)+"]"
		case in && text == "trusted_hash = "+jsonText(hash):
			trusted = true
		case in && text == "enabled = false":
			return false
		}
	}
	return trusted
}
