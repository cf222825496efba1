//go:build !linux

package machine

func coveredInProc() []string { return nil }
