package machine

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cloche-dev/cloche/host"
)

// An identity is the name and home folder of the caller.
type identity struct{ name, home string }

// identify returns the caller's name and home folder from the environment, or, if they
// are missing there, from the text of the user database.
func identify(getenv func(string) (string, bool), uid int, users func() (string, error)) (identity, error) {
	id := identity{name: firstOf(getenv, "USER", "LOGNAME", "USERNAME"), home: homeFrom(getenv)}
	if id.name != "" && id.home != "" {
		return id, nil
	}
	var entry identity
	text, err := users()
	if err == nil {
		entry, err = scanPasswd(text, uid)
	}
	id.name = cmp.Or(id.name, entry.name, strconv.Itoa(uid))
	if id.home == "" && filepath.IsAbs(entry.home) {
		id.home = filepath.Clean(entry.home)
	}
	if id.home != "" {
		return id, nil
	}
	if err == nil {
		err = fmt.Errorf("its home folder there is %q", entry.home)
	}
	return id, fmt.Errorf("no home folder for uid %d: HOME is not an absolute path, and looking the user up did not help: %w (set HOME to an absolute path)", uid, err)
}

func homeFrom(getenv func(string) (string, bool)) string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if v, _ := getenv(name); filepath.IsAbs(v) {
			return filepath.Clean(v)
		}
		if runtime.GOOS != "windows" {
			break
		}
	}
	return ""
}

func firstOf(getenv func(string) (string, bool), names ...string) string {
	for _, n := range names {
		if v, _ := getenv(n); v != "" {
			return v
		}
	}
	return ""
}

const passwdFile = "/etc/passwd"

// readUsers returns the text of the local user database. Users of a network directory
// are not in it, and cannot be found without cgo.
func readUsers() (string, error) {
	text, err := slurp(passwdFile)
	return string(text), err
}

// scanPasswd returns the first entry with the uid.
func scanPasswd(text string, uid int) (identity, error) {
	want := strconv.Itoa(uid)
	for line := range strings.Lines(text) {
		if f, ok := userFields(line); ok && f[2] == want && f[0] != "" {
			return identity{name: f[0], home: f[5]}, nil
		}
	}
	return identity{}, fmt.Errorf("uid %d is not in %s", uid, passwdFile)
}

// userFields splits a line: name:password:uid:gid:comment:home and the shell,
// which may be missing.
func userFields(line string) (fields [6]string, ok bool) {
	rest := strings.TrimRight(line, "\r\n")
	for i := range fields {
		if i > 0 && !ok {
			return fields, false
		}
		fields[i], rest, ok = strings.Cut(rest, ":")
	}
	return fields, true
}

// dirsFor returns cloche's own folders. A relative value of an XDG variable is invalid
// by its specification, and is ignored.
func dirsFor(home string, getenv func(string) (string, bool)) host.Dirs {
	in := func(variable string, fallback ...string) string {
		base, _ := getenv(variable)
		if !filepath.IsAbs(base) {
			base = filepath.Join(append([]string{home}, fallback...)...)
		}
		return filepath.Join(base, "cloche")
	}
	return host.Dirs{
		Config: in("XDG_CONFIG_HOME", ".config"),
		Data:   in("XDG_DATA_HOME", ".local", "share"),
		State:  in("XDG_STATE_HOME", ".local", "state"),
		Cache:  in("XDG_CACHE_HOME", ".cache"),
	}
}

// firstUser is the first uid of a person on most systems. Smaller ones belong to
// services.
const firstUser = 1000

// scanHomes reads a user database. It returns the homes of the uid except own, and the
// homes of all other people and of root. If the uid is root's, which can read them, it
// includes homes of services.
func scanHomes(text string, uid int, own string) (homes, others []string) {
	for line := range strings.Lines(text) {
		f, ok := userFields(line)
		if !ok || !path.IsAbs(f[5]) {
			continue
		}
		id, err := strconv.Atoi(f[2])
		home := path.Clean(f[5])
		switch {
		case err != nil || home == own || home == "/":
		case id == uid:
			homes = append(homes, home)
		case id == 0 || id >= firstUser || uid == 0 && holdsData(home):
			others = append(others, home)
		}
	}
	return sortedSet(homes), sortedSet(others)
}

// serviceFolders contain the folders of services. Home folders elsewhere in the user
// database are only placeholders: /bin, /usr/games, /nonexistent.
var serviceFolders = []string{"/var/lib", "/var/spool", "/srv"}

// holdsData reports whether the home of a service contains its data.
func holdsData(home string) bool {
	return home == "/var/mail" || home == "/var/backups" || slices.Contains(serviceFolders, path.Dir(home))
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// peopleHomes returns the home folders of other people on a system that has no user
// file and keeps all homes in one folder: the entries of that folder except the
// caller's own and shared ones.
func peopleHomes(folder, own string) []string {
	var homes []string
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		home := path.Join(folder, e.Name())
		if e.Name()[0] != '.' && e.Name() != "Shared" && home != own {
			homes = append(homes, home)
		}
	}
	return homes
}

// ownDirs returns the folders of cloche's own files. Inside another sandbox the usual
// ones are hidden, so that commands there cannot change the log or the configuration. A
// cloche that runs inside keeps its files in a private folder that is deleted with the
// sandbox, unless the environment names others.
func ownDirs(home string, uid int, getenv func(string) (string, bool)) host.Dirs {
	d := dirsFor(home, getenv)
	if !Nested() {
		return d
	}
	own := filepath.Join("/tmp", "cloche-"+strconv.Itoa(uid))
	if _, told := getenv("XDG_STATE_HOME"); !told {
		d.State = filepath.Join(own, "state")
	}
	if _, told := getenv("XDG_CACHE_HOME"); !told {
		d.Cache = filepath.Join(own, "cache")
	}
	return d
}

// OwnDirs returns the folders of cloche's own files for the caller, without collecting
// other facts. They are the same as in a [host.Snapshot].
func OwnDirs() (host.Dirs, error) {
	id, err := identify(os.LookupEnv, os.Getuid(), readUsers)
	if err != nil {
		return host.Dirs{}, err
	}
	return ownDirs(id.home, os.Getuid(), os.LookupEnv), nil
}
