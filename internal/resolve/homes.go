package resolve

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// sharedHomes are home folders in name only: programs for everybody are there.
var sharedHomes = []string{"linuxbrew"}

// homesFolder is where Linux has home folders, also of people who are in no file: those
// of a directory service, and of systemd-homed.
const homesFolder = "/home"

// homesNames are names of folders of homes elsewhere, such as /export/home.
var homesNames = []string{"home", "homes", "users"}

// findHomes hides the home folders of other people under a policy that hides the
// caller's own secrets. In one that the workspace is in only secrets are hidden:
// the work may need what lies around it.
func (b *builder) findHomes() {
	b.homes = slices.Clip(b.snap.Homes)
	secrets := slices.IndexFunc(b.policy.Paths, func(r policy.PathRule) bool {
		return r.Access == policy.Hidden && r.Origin.Layer == policy.LayerPreset && strings.HasPrefix(r.Path, "~/")
	})
	if secrets < 0 {
		return
	}
	// No line of the preset is about them.
	origin := policy.Origin{Layer: policy.LayerPreset, Source: "built-in: other users' files, hidden with " + b.policy.Paths[secrets].Origin.Source}
	hide := func(home, reason string) {
		b.placeImplied(&policy.PathRule{Path: home, Access: policy.Hidden, Reason: reason, Origin: origin}, false)
	}
	if b.snap.OS != darwin {
		for _, folder := range b.homesFolders() {
			hide(folder, "the home folders of others")
			b.showHomes(folder)
		}
		if b.snap.UID == 0 {
			hide("/var/lib/private", "files of services that share their users")
		}
	}
	for _, home := range b.snap.Others {
		switch {
		case b.workedIn(home):
			b.homes = append(b.homes, home)
		case !slices.Contains(sharedHomes, path.Base(home)):
			hide(home, "the home folder of somebody else")
		}
	}
	b.homes = slices.Compact(slices.Sorted(slices.Values(b.homes)))
}

// workedIn reports whether the command works in a home folder, or it is around the
// caller's own.
func (b *builder) workedIn(home string) bool {
	return pathx.Within(home, b.vars.Workspace) || pathx.Within(home, b.vars.Cwd) || pathx.Within(home, b.snap.Home)
}

// homesFolders are the folders that hold nothing but homes. One is left as it is where the
// command works in the folder itself.
func (b *builder) homesFolders() []string {
	list := []string{homesFolder}
	if around := path.Dir(b.snap.Home); around != homesFolder && slices.Contains(homesNames, path.Base(around)) {
		list = append(list, around)
	}
	return slices.DeleteFunc(list, func(folder string) bool {
		return pathx.Within(b.vars.Workspace, folder) || pathx.Within(b.vars.Cwd, folder)
	})
}

// showHomes shows what of a hidden folder of homes is the caller's, everybody's, or worked
// in, if the policy shows the host at all.
func (b *builder) showHomes(folder string) {
	if b.policy.Reads != policy.ReadsHost {
		return
	}
	shown := append([]string{b.snap.Home}, b.snap.Homes...)
	for _, name := range sharedHomes {
		shown = append(shown, path.Join(folder, name))
	}
	for _, dir := range []string{b.vars.Workspace, b.vars.Cwd} {
		if pathx.Within(folder, dir) {
			name, _, _ := strings.Cut(pathx.Rel(folder, dir), "/")
			home := path.Join(folder, name)
			shown = append(shown, home)
			if home != b.snap.Home {
				b.homes = append(b.homes, home)
			}
		}
	}
	for _, home := range shown {
		if home != folder && pathx.Within(folder, home) {
			b.systemFile(home, policy.Read, "reads: host")
		}
	}
}
