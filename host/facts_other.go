//go:build !linux && !darwin

package host

var homeVariables = []string{"HOME", "USERPROFILE"}

func workingFolder() (string, error) { return realWorkingFolder() }

// collectKernel fills in nothing: no backend confines anything on this system.
func (s *Snapshot) collectKernel() {
	s.Namespaces = noNamespaces
	s.Landlock = Landlock{Reason: "Landlock is a part of Linux"}
}

// people are the homes of people who are not in the user database: none here.
func people(string) []string { return nil }
