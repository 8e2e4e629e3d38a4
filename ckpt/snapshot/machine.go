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

// irrelevant are flags by which no code of a program is chosen, or which it can do without. All others are needed, such as
// those that a later kernel names: a restart that is refused can be tried elsewhere, while one that should have been ends
// in SIGILL, or is wrong.
var irrelevant = set(
	// How the kernel or a hypervisor runs the processor.
	`acc_power acpi amd_dcm amd_fast_cppc amd_lbr_pmc_freeze amd_lbr_v2 amd_ppin aperfmperf apic arat
	arch_capabilities arch_lbr arch_perfmon art avic bpext brs bts bus_lock_detect cat_l2 cat_l3 cdp_l2 cdp_l3
	cmp_legacy constant_tsc core_capabilities cpb cppc cpuid cpuid_fault cqm cqm_llc cqm_mbm_local cqm_mbm_total
	cqm_occup_llc cr8_legacy dca debug_swap decodeassists ds_cpl dtes64 dtherm dts epb ept ept_ad est extapic
	extd_apicid flexpriority flush_l1d flushbyasid fxsr_opt hfi ht hw_pstate hwp hwp_act_window hwp_epp hwp_notify
	hwp_pkg_req hypervisor ibpb ibrs ibrs_enhanced ibs ibt ida intel_ppin intel_pt invpcid invpcid_single irperf
	la57 lbrv mba mca mce md_clear mtrr nodeid_msr nonstop_tsc nonstop_tsc_s3 nopl npt nrip_save osvw overflow_recov
	pat pausefilter pbe pcid pconfig pdcm pdpe1gb pebs perfctr_core perfctr_llc perfctr_nb perfmon_v2 pfthreshold
	pln proc_feedback pti pts ptsc rapl rdt_a rep_good sdbg sev sev_es sev_snp sgx sgx_lc skinit smap smca sme
	sme_coherent smep smx split_lock_detect ss ssbd stibp succor svm svm_lock tce tm tm2 tme topoext tpr_shadow
	tsc_adjust tsc_deadline_timer tsc_known_freq tsc_reliable tsc_scale umip user_shstk v_spec_ctrl v_vmsave_vmload
	vgif virt_ssbd vmcb_clean vmmcall vmx vnmi vpid wbnoinvd wdt x2apic x2avic xsaveerptr xsaves xtopology xtpr`,
	// Of what each processor of 64 bits has, another name that AMD gave it.
	"mmxext",
	// For kernels alone, or for programs of 16 and 32 bits. QEMU's emulated processor lacks the first.
	"vme de pse pse36 pge msr",
	// How quick a string instruction is that each processor has.
	"erms fsrm fsrc fsrs fzrm",
	// Instructions and prefixes that do nothing where a processor or kernel does not know them.
	"hle mpx",
	// These wait for a change of memory: monitor is the kernel's, and no library chooses monitorx.
	"monitor mwaitx",
	// A program that changes its bases itself could not be saved anyway, and the C library does not.
	"fsgsbase",
)

func set(lists ...string) map[string]bool {
	m := map[string]bool{}
	for _, list := range lists {
		for _, name := range strings.Fields(list) {
			m[name] = true
		}
	}
	return m
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
