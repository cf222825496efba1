//go:build !linux

package host

import "context"

func detectLSMs(reader) []string { return nil }

func detectCgroup() Cgroup { return Cgroup{} }

func (s *Snapshot) probeUserNS(context.Context) Probe {
	return classifyUserNS(facts{snapshot: s})
}

func (s *Snapshot) probeBwrap(context.Context) Bwrap {
	b := s.Bwrap
	b.Probe = classifyBwrap(facts{snapshot: s})
	return b
}
