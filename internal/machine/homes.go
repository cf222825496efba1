package machine

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// firstUser is the first uid of people on most systems; below are services.
const firstUser = 1000

// otherHomes returns the caller's home folders beside own, and those of others.
func (db userDB) otherHomes(uid int, own string) (homes, others []string) {
	text, err := db()
	if err != nil {
		return nil, nil
	}
	return scanHomes(string(text), uid, own)
}

// scanHomes reads a user database: the uid's own home, and those of all other
// people and of root. For root, who can read them, those of services are among them.
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

// serviceFolders are where services have folders of their own. Other entries of the user
// database are names only: /bin, /usr/games, /nonexistent.
var serviceFolders = []string{"/var/lib", "/var/spool", "/srv"}

// holdsData reports whether the home of a service holds its data.
func holdsData(home string) bool {
	return home == "/var/mail" || home == "/var/backups" || slices.Contains(serviceFolders, path.Dir(home))
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
