package host

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
// people and of root.
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
		case id == 0 || id >= firstUser:
			others = append(others, home)
		}
	}
	return sortedSet(homes), sortedSet(others)
}

func sortedSet(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
