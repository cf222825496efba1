// Package testbus is help for tests: a real session bus (dbus-daemon) of the
// test's own, and services on it that answer every call and remember it. It
// speaks just enough of the protocol for that, and is linked into no product.
package testbus
