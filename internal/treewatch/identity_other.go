//go:build !linux

package treewatch

import (
	"time"

	"github.com/cloche-dev/cloche/host"
	"github.com/cloche-dev/cloche/internal/hostfs"
)

// An identity is empty: no sandbox is parked on this system.
type identity struct{}

func identify(string) identity { return identity{} }

func examine(string) (identity, time.Time) { return identity{}, time.Time{} }

func (identity) kind() host.Kind { return hostfs.Missing }

// A notifier reports nothing on this system.
type notifier struct{}

func newNotifier() *notifier { return nil }

func (*notifier) add(*folder) bool { return false }

func (*notifier) collect() {}

func (*notifier) close() {}
