//go:build !linux && !darwin

package machine

import "github.com/cloche-dev/cloche/host"

var homeVariables = []string{"HOME", "USERPROFILE"}

func workingFolder() (string, error) { return realWorkingFolder() }

// collectKernel fills in nothing: no backend confines anything on this system.
func collectKernel(s *host.Snapshot) {
	s.Namespaces = noNamespaces
	s.Landlock = host.Landlock{Reason: "Landlock is a part of Linux"}
}

// people are the homes of people who are not in the user database: none here.
func people(string) []string { return nil }
