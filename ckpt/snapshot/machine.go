// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bufio"
	"io"
	"os"
	"sort"
	"strings"
)

// CPUFlags lists the features of this machine's processor. A program chooses code by them once, when it starts
// (docs/split-process.md P26), so the machine of a restart needs all features of the machine of the image.
func CPUFlags() ([]string, error) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return cpuFlags(f)
}

// cpuFlags reads no further than the first processor: the kernel writes this file while it is read, and takes long
// for a machine with many.
func cpuFlags(r io.Reader) ([]string, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if name, flags, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(name) == "flags" {
			f := strings.Fields(flags)
			sort.Strings(f)
			return f, nil
		}
	}
	return nil, sc.Err()
}

// irrelevant are flags that say how the kernel or a hypervisor runs the processor, not which
// instructions a program may use.
var irrelevant = map[string]bool{
	"hypervisor": true, "constant_tsc": true, "nonstop_tsc": true, "tsc_known_freq": true, "rep_good": true,
	"nopl": true, "xtopology": true, "cpuid": true, "cpuid_fault": true, "arch_capabilities": true,
	"aperfmperf": true, "pti": true, "ibrs": true, "ibpb": true, "stibp": true, "ssbd": true,
	"ibrs_enhanced": true, "md_clear": true, "flush_l1d": true, "tpr_shadow": true, "vnmi": true,
	"flexpriority": true, "ept": true, "vpid": true, "vmx": true, "svm": true, "tsc_adjust": true,
	"tsc_deadline_timer": true, "arch_perfmon": true, "pebs": true, "bts": true, "dtherm": true,
	"ida": true, "arat": true, "pln": true, "pts": true, "hwp": true, "acpi": true, "tm": true, "tm2": true,
	"ht": true, "x2apic": true, "apic": true, "mtrr": true, "mce": true, "mca": true, "pat": true,
	"smep": true, "smap": true, "umip": true, "pcid": true, "invpcid": true, "tsxldtrk": true,
	// For kernels alone, or for programs of 16 and 32 bits. QEMU's emulated processor lacks the first.
	"vme": true, "de": true, "pse": true, "pse36": true, "pge": true, "msr": true,
	// A program that changes its bases itself could not be saved anyway, and the C library does not.
	"fsgsbase": true,
}

// MissingFlags are features that are in saved and not in here.
func MissingFlags(saved, here []string) []string {
	have := map[string]bool{}
	for _, f := range here {
		have[f] = true
	}
	var out []string
	for _, f := range saved {
		if !have[f] && !irrelevant[f] {
			out = append(out, f)
		}
	}
	return out
}

// StateComponents are the components of extended state (XSAVE) of a processor with these features, bits as in XCR0. Those
// without registers that compiled code uses are left out.
func StateComponents(flags []string) uint64 {
	components := uint64(1<<0 | 1<<1) // x87, SSE
	for _, f := range flags {
		switch f {
		case "avx":
			components |= 1 << 2
		case "avx512f":
			components |= 1<<5 | 1<<6 | 1<<7
		case "amx_tile":
			components |= 1<<17 | 1<<18
		}
	}
	return components
}
