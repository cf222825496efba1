//go:build !linux

package main

import "errors"

func (l *lab) networkWays() (networkWays, error) {
	return networkWays{}, errors.New("it needs Linux")
}
