package sysprog

// A Kind says what an argument is.
type Kind uint8

// The kinds of argument.
const (
	KindConst     Kind = iota // the number in Value
	KindOpenFlags             // an OpenFlag in Value, translated for the architecture
	KindOpenHow               // the address of a struct open_how: flags as above, then Text
	KindString                // the address of Text and a NUL byte
	KindBytes                 // the address of a copy of Text, which the call may write to
	KindFilter                // the address of a struct sock_fprog for the BPF instructions in Text
	KindVector                // the address of a NULL-terminated array of the strings in List
	KindEnviron               // the same of Options.Env: a program carries no secrets
	KindResult                // what step number Value, an earlier one, returned
	KindFile                  // the descriptor Options.Files[Value]
	KindSync                  // the child's end (Value 0) or the parent's (Value 1) of the rendezvous
	KindArgv                  // the address of a NULL-terminated array of the strings in Options.Argv
	KindText                  // the address of Options.Texts[Value] and a NUL byte
	KindOutput                // the address of Value bytes that the call fills: see Block.ReportInode
	KindMessage               // the address of a struct msghdr: the bytes in Text, with the descriptor Value
)

// An Arg is one argument of a system call. Which fields count depends on the Kind.
type Arg struct {
	Kind  Kind
	Value uint64
	Text  string // a path, or bytes, which nobody can change: programs share them
	List  []string
	// note, unless nil, is how the argument is printed, where the number or the bytes
	// alone would say little.
	note func() string
}

// Const is a plain number.
func Const(v uint64) Arg { return Arg{Value: v} }

// Named is a number that is printed by its name.
func Named(v uint64, name string) Arg { return Arg{Value: v, note: func() string { return name }} }

// FD is a descriptor whose number is known.
func FD(n int) Arg { return Const(uint64(n)) }

// Str is a string.
func Str(s string) Arg { return Arg{Kind: KindString, Text: s} }

// Bytes is the address of the bytes, printed as note says, or as a quoted string
// if it is empty.
func Bytes(b []byte, note string) Arg {
	a := Arg{Kind: KindBytes, Text: string(b)}
	if note != "" {
		a.note = func() string { return note }
	}
	return a
}

// Cwd is the working folder, for calls that take the descriptor of a folder.
func Cwd() Arg {
	const atFDCWD = -100
	v := int64(atFDCWD)
	return Named(uint64(v), "AT_FDCWD")
}

// null is a pointer that is not given.
func null() Arg { return Named(0, "NULL") }
