package host

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// firstUser is the first uid of people on most systems; below are services.
const firstUser = 1000

// otherHomes returns the home folders, beside own, whose secrets uid can read.
func (db userDB) otherHomes(uid int, own string) []string {
	text, err := db()
	if err != nil {
		return nil
	}
	return scanHomes(string(text), uid, own)
}

// scanHomes reads a user database: the uid's own home, and for root those of
// all people.
func scanHomes(text string, uid int, own string) []string {
	var homes []string
	for line := range strings.Lines(text) {
		f, ok := userFields(line)
		if !ok || !path.IsAbs(f[5]) {
			continue
		}
		id, err := strconv.Atoi(f[2])
		if err != nil || id != uid && (uid != 0 || id < firstUser) {
			continue
		}
		if home := path.Clean(f[5]); home != own && home != "/" {
			homes = append(homes, home)
		}
	}
	slices.Sort(homes)
	return slices.Compact(homes)
}
