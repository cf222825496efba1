package machine

import "path"

// peopleHomes are the home folders of other people on a system that keeps them in
// one folder and its users in no file: the entries of the folder, but for the
// caller's own and what is nobody's.
func peopleHomes(folder string, names []string, own string) []string {
	var homes []string
	for _, name := range names {
		home := path.Join(folder, name)
		if name[0] != '.' && name != "Shared" && home != own {
			homes = append(homes, home)
		}
	}
	return homes
}
