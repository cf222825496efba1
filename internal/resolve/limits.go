package resolve

import (
	"fmt"

	"github.com/cloche-dev/cloche/plan"
	"github.com/cloche-dev/cloche/policy"
)

func (b *builder) limits() {
	l, def := b.policy.Limits, policy.DefaultLimits()
	b.limit(plan.LimitTime, int64(l.Time), int64(def.Time))
	b.limit(plan.LimitOutput, l.Output, def.Output)
	b.limit(plan.LimitMemory, l.Memory, b.defaultMemory())
	b.limit(plan.LimitProcesses, l.Processes, def.Processes)
	b.limit(plan.LimitOpenFiles, l.OpenFiles, def.OpenFiles)
	b.limit(plan.LimitFileSize, l.FileSize, def.FileSize)
}

// defaultMemory returns three quarters of the machine's memory.
func (b *builder) defaultMemory() int64 {
	if b.snap.MemoryTotal <= 0 {
		return policy.Unlimited
	}
	return b.snap.MemoryTotal / 4 * 3
}

func (b *builder) limit(name string, value, def int64) {
	origin, set := b.policy.Limits.Origin[name]
	if set && origin.Untrusted && def > 0 && value > def {
		// The default on this machine was not known when the layers were merged.
		b.notice(plan.NoticeInfo, fmt.Sprintf("limits.%s: the value in a file that is not trusted is above the default, and is ignored", name), origin)
		value = 0
	}
	if value == 0 {
		value, origin = def, builtin("default limit")
		if name == plan.LimitOutput {
			origin = builtin("default limit of output that is captured; a stream that is passed on has none")
		}
	} else if !set {
		origin = policy.Origin{Layer: policy.LayerCommand, Source: "limits"}
	}
	b.plan.Limits = append(b.plan.Limits, plan.Limit{Name: name, Value: max(value, policy.Unlimited), Origin: origin})
}
