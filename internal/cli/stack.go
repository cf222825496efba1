package cli

// stackRoom is more than what a run needs of its stack.
const stackRoom = 40 << 10

// growStack makes the stack of its goroutine large enough for a run, at once and
// while there is next to nothing on it. A stack begins with 2 KiB and is doubled
// each time that it is too small; each time the runtime walks through all frames,
// by tables that have to be read from the program's file first. A run would pay
// for that five times.
//
// The runtime makes room for the whole frame when a function is entered. It is
// not touched: the function returns before anything in it is used.
//
//go:noinline
func growStack(use bool) (sum int) {
	if !use {
		return 0
	}
	var room [stackRoom]byte
	for i := range room {
		room[i] = byte(sum + i)
		sum += int(room[(i*7)%stackRoom])
	}
	return sum
}
