package initprog

import _ "embed"

//go:embed init_arm64.elf
var program []byte

//go:embed launch_arm64.elf
var launcher []byte
