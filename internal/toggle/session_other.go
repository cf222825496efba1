//go:build !linux

package toggle

import "errors"

// CurrentSession fails: sessions are not known on this system.
func CurrentSession() (string, error) { return SessionOf(0) }

// SessionOf fails: sessions are not known on this system.
func SessionOf(int) (string, error) {
	return "", errors.New("sessions can be distinguished on Linux only; switch for the project instead, with --project")
}

func alive(string) bool { return true }
