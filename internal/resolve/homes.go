package resolve

import (
	"path"
	"slices"
	"strings"

	"github.com/cloche-dev/cloche/internal/pathx"
	"github.com/cloche-dev/cloche/policy"
)

// sharedHomes are folders among the homes that contain programs for all users.
var sharedHomes = []string{"linuxbrew"}

// homesFolder is the folder of homes on Linux, also for users who are in no file: those of a
// directory service, and of systemd-homed.
const homesFolder = "/home"

// homesNames are names of other folders with homes, such as /export/home.
var homesNames = []string{"home", "homes", "users"}

// findHomes hides the home folders of other users, if the policy hides the caller's own
// secrets. In a home folder that contains the workspace, only secrets are hidden, because the
// command may need files around the workspace.
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

// workedIn reports whether the command works in a home folder, or whether it contains the
// caller's own.
func (b *builder) workedIn(home string) bool {
	return pathx.Within(home, b.vars.Workspace) || pathx.Within(home, b.vars.Cwd) || pathx.Within(home, b.snap.Home)
}

// homesFolders returns the folders that contain only homes. A folder in which the command
// itself works is left out.
func (b *builder) homesFolders() []string {
	list := []string{homesFolder}
	if around := path.Dir(b.snap.Home); around != homesFolder && slices.Contains(homesNames, path.Base(around)) {
		list = append(list, around)
	}
	return slices.DeleteFunc(list, func(folder string) bool {
		return pathx.Within(b.vars.Workspace, folder) || pathx.Within(b.vars.Cwd, folder)
	})
}

// showHomes shows parts of a hidden folder of homes, if the policy shows the host at all: the
// caller's homes, shared ones, and those that the command works in.
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
