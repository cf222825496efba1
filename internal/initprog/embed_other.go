//go:build !linux || (!amd64 && !arm64)

package initprog

var program, launcher []byte
