package host

import (
	"bufio"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// firstUser is the first uid of people on most systems; below are services.
const firstUser = 1000

// otherHomes returns the home folders, beside own, whose secrets uid can read.
func otherHomes(uid int, own string) []string {
	f, err := os.Open(passwdFile)
	if err != nil {
		return nil
	}
	defer f.Close()
	return scanHomes(f, uid, own)
}

// scanHomes reads a user database: the uid's own home, and for root those of
// all people.
func scanHomes(r io.Reader, uid int, own string) []string {
	var homes []string
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Split(sc.Text(), ":")
		if len(f) < 6 || !path.IsAbs(f[5]) {
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
