//go:build !linux

package machine

import (
	"context"

	"github.com/cloche-dev/cloche/host"
)

func detectLSMs(reader) []string { return nil }

func detectCgroup() host.Cgroup { return host.Cgroup{} }

func probeUserNS(_ context.Context, s *host.Snapshot) host.Probe {
	return classifyUserNS(facts{snapshot: s})
}

func probeBwrap(_ context.Context, s *host.Snapshot) host.Bwrap {
	b := s.Bwrap
	b.Probe = classifyBwrap(facts{snapshot: s})
	return b
}
