#include "go_asm.h"
#include "textflag.h"

#define SYS_rt_sigprocmask 14
#define SYS_clone 56
#define SYS_exit_group 231
#define SIG_SETMASK 2
#define SIZEOF_SIGSET 8
#define EXIT_FAILED 125

// LOAD puts argument n of the record in R13 into a register, through its address
// where bit n of BX says so.
#define LOAD(n, reg) \
	MOVQ	(record_args+8*n)(R13), reg;	\
	BTQ	$n, BX;	\
	JCC	2(PC);	\
	MOVQ	(reg), reg

// func spawn(c *control)
//
// R12 holds the control block, R13 the current record. Only AX, CX and R11
// change in a system call. BP, and in the child the stack, are left alone.
TEXT ·spawn(SB),NOSPLIT,$0-8
	MOVQ	c+0(FP), R12

	MOVQ	$SIG_SETMASK, DI
	LEAQ	control_blocked(R12), SI
	LEAQ	control_mask(R12), DX
	MOVQ	$SIZEOF_SIGSET, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL

	MOVQ	control_flags(R12), DI
	XORL	SI, SI	// the stack stays the same
	LEAQ	control_pidFD(R12), DX
	XORL	R10, R10
	XORL	R8, R8
	MOVQ	$SYS_clone, AX
	SYSCALL
	TESTQ	AX, AX
	JZ	child

	MOVQ	AX, control_pid(R12)
	MOVQ	$SIG_SETMASK, DI
	LEAQ	control_mask(R12), SI
	XORL	DX, DX
	MOVQ	$SIZEOF_SIGSET, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL
	RET

child:
	MOVQ	control_first(R12), R13
step:
	MOVQ	R13, control_current(R12)
	MOVQ	record_indirect(R13), BX
	LOAD(0, DI)
	LOAD(1, SI)
	LOAD(2, DX)
	LOAD(3, R10)
	LOAD(4, R8)
	LOAD(5, R9)
	MOVQ	record_number(R13), AX
	CMPQ	AX, $const_numberXor
	JEQ	xor
	SYSCALL
	MOVQ	AX, record_result(R13)
	CMPQ	AX, $-4095
	JCC	error
	JMP	returned
xor:
	XORQ	DI, SI
	MOVQ	SI, AX
	MOVQ	AX, record_result(R13)

returned:
	MOVQ	record_flags(R13), BX
	TESTQ	$const_recordForks, BX
	JZ	wanted
	TESTQ	AX, AX
	JZ	next
	XORL	DI, DI	// the other process goes on
	JMP	exit
wanted:
	TESTQ	$const_recordWants, BX
	JZ	done
	CMPQ	AX, record_want(R13)
	JNE	failed
done:
	TESTQ	$const_recordContinues, BX
	JNZ	continue
next:
	ADDQ	$record__size, R13
	JMP	step
continue:
	MOVQ	control_next(R12), R12
	MOVQ	control_entry(R12), R13
	JMP	step

error:
	MOVQ	record_ignore(R13), BX
	TESTQ	BX, BX
	JZ	failed
compare:
	MOVQ	(BX), CX
	TESTQ	CX, CX
	JZ	failed
	ADDQ	$8, BX
	CMPQ	CX, AX
	JNE	compare
	MOVQ	$-1, record_result(R13)
	JMP	next

failed:
	MOVQ	$1, control_failed(R12)
	MOVQ	$EXIT_FAILED, DI
exit:
	MOVQ	$SYS_exit_group, AX
	SYSCALL
	JMP	exit
