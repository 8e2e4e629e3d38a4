// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// kind says how a parameter of a function is handled on both sides. In the texts, $ is the
// parameter's name in the front and its word of the argument array in the back.
type kind struct {
	ctype string // C type in the front, $ where the name goes; "T *$" and so on

	// Front: in is the word that goes through the gate; before and after are statements around the
	// call ("" for none); after runs only when the call succeeded.
	in, before, after string

	// Back: arg is the argument of the real function; backBefore and backAfter are statements around
	// it. backAfter runs only when the call succeeded.
	arg, backBefore, backAfter string

	backFinally string // statement after the call in any case

	// written: the front writes through the address, so it checks that there is one. A real MPI checks the
	// addresses that it gets itself.
	written bool
}

// plain is a parameter that is passed on unchanged.
func plain(ctype string) kind {
	t := strings.TrimSpace(strings.ReplaceAll(ctype, "$", ""))
	return kind{ctype: ctype, in: "(long)$", arg: "(" + strings.ReplaceAll(t, "[]", "*") + ")$"}
}

// frontOnly is a kind of parameter that only functions answered by the front, or by hand, have.
func frontOnly(ctype string) kind { return kind{ctype: ctype, in: "(long)$"} }

// handle is a handle that goes in.
func handle(ctype, short string) kind {
	return kind{ctype: ctype + " $", in: "(long)in_" + short + "($)", arg: "real_" + short + "($)"}
}

// handleOut is a handle that comes out.
func handleOut(ctype, short string) kind {
	return kind{ctype: ctype + " *$", before: "ckpt_vid v_$ = CKPT_VID_NONE;", in: "(long)&v_$",
		after: "*$ = out_" + short + "(v_$);", written: true}
}

// handleInOut is a handle that a call may change.
func handleInOut(ctype, short string) kind {
	return kind{ctype: ctype + " *$", before: "ckpt_vid v_$ = in_" + short + "(*$);", in: "(long)&v_$",
		after: "*$ = out_" + short + "(v_$);", written: true}
}

// toolNumber is a number that comes out of the tools interface.
func toolNumber(what string) kind {
	return kind{ctype: "int *$", in: "(long)$", after: "if ($ != NULL) *$ = T_" + what + "(*$);",
		arg: "(int *)$", backAfter: "if ($) *(int *)$ = canon_tool_" + strings.ToLower(what) + "(*(int *)$);"}
}

var kinds = map[string]kind{
	// words
	"int":     plain("int $"),
	"aint":    plain("MPI_Aint $"),
	"count":   plain("MPI_Count $"),
	"counts":  frontOnly("const MPI_Count *$"),
	"large":   frontOnly("MPI_Count $"),        // an int of the function that a class large function calls
	"larges":  frontOnly("const MPI_Count *$"), // an array of ints there
	"laints":  frontOnly("const MPI_Aint *$"),  // an array of ints there
	"offset":  plain("MPI_Offset $"),
	"ints":    plain("const int *$"),
	"intp":    plain("int *$"),
	"aints":   plain("const MPI_Aint *$"),
	"aintp":   plain("MPI_Aint *$"),
	"countp":  plain("MPI_Count *$"),
	"offsetp": plain("MPI_Offset *$"),
	"cstr":    plain("const char *$"),
	"str":     plain("char *$"),
	"vptr":    plain("void *$"),
	"cvptr":   plain("const void *$"),
	"strs":    frontOnly("char **$"),
	"strsp":   frontOnly("char ***$"),
	"ranges":  frontOnly("int $[][3]"),

	// values with special meanings
	"buf":       {ctype: "const void *$", in: "in_buf($)", arg: "real_buf($)"},
	"mbuf":      {ctype: "void *$", in: "in_buf($)", arg: "real_buf($)"},
	"rank":      {ctype: "int $", in: "in_rank($)", arg: "real_rank($)"},
	"color":     {ctype: "int $", in: "$", arg: "($ == CANON_UNDEFINED ? MPI_UNDEFINED : (int)$)"},
	"tag":       {ctype: "int $", in: "in_tag($)", arg: "real_tag($)"},
	"cweights":  {ctype: "const int *$", in: "in_weights($)", arg: "real_weights($)"},
	"weights":   {ctype: "int *$", in: "in_weights($)", arg: "real_weights($)"},
	"order":     {ctype: "int $", in: "in_order($)"},
	"distribs":  {ctype: "const int *$", in: "(long)$"},
	"dargs":     {ctype: "const int *$", in: "(long)$"},
	"typeclass": {ctype: "int $", in: "in_typeclass($)"},
	"assert":    {ctype: "int $", in: "in_assert($)", arg: "real_assert($)"},
	"lock":      {ctype: "int $", in: "in_lock($)", arg: "real_lock($)"},
	"orank": {ctype: "int *$", in: "(long)$", after: "*$ = out_rank(*$);",
		arg: "(int *)$", backAfter: "*(int *)$ = canon_rank(*(int *)$);", written: true},
	// the tools interface: numbers that begin at another base in each MPI, and NULL for what nobody
	// wants to know
	"overbosity": toolNumber("VERBOSITY"),
	"obind":      toolNumber("BIND"),
	"oscope":     toolNumber("SCOPE"),
	"opclass":    toolNumber("CLASS"),
	"pclass":     {ctype: "int $", in: "$ - T_CLASS_BASE", arg: "(int)$ + TOOL_CLASS_BASE"},
	"tooltype": {ctype: "MPI_Datatype *$", before: "ckpt_vid v_$ = VID_TYPE_NULL;", in: "(long)&v_$",
		after:      "if ($ != NULL) *$ = out_type(v_$);",
		backBefore: "MPI_Datatype t_%d = MPI_DATATYPE_NULL;", arg: "&t_%d",
		backAfter: "*(ckpt_vid *)$ = back_tool_type(t_%d);"},
	"pvar": {ctype: "void *$", in: "in_pvar($)", arg: "real_pvar($)"},

	// enumerations
	"ocompare": {ctype: "int *$", in: "(long)$", after: "*$ = out_compare(*$);",
		arg: "(int *)$", backAfter: "*(int *)$ = canon_compare(*(int *)$);", written: true},
	"whence": {ctype: "int $", in: "in_whence($)", arg: "real_whence($)"},
	"amode":  {ctype: "int $", in: "in_amode($)"},
	"oamode": {ctype: "int *$", in: "(long)$", after: "*$ = out_amode(*$);", arg: "(int *)$", written: true},
	"viewat": {ctype: "MPI_Offset $", in: "in_viewat($)"},
	"level":  {ctype: "int $", in: "in_level($)"},
	"olevel": {ctype: "int *$", in: "(long)$", after: "*$ = out_level(*$);", arg: "(int *)$", written: true},

	"otopo": {ctype: "int *$", in: "(long)$", after: "*$ = out_topo(*$);",
		arg: "(int *)$", backAfter: "*(int *)$ = canon_topo(*(int *)$);", written: true},

	// statuses
	"ostatus": {ctype: "MPI_Status *$", in: "out_status($)",
		backBefore: "MPI_Status own_%d, *s_%d = status_for($, &own_%d);", arg: "s_%d",
		backAfter: "if (s_%d == &own_%d) give_status(s_%d, $);"},
	"cstatus":  {ctype: "const MPI_Status *$", in: "status_word(FRONT_ABI, $)"},
	"iostatus": frontOnly("MPI_Status *$"),
	"statuses": frontOnly("MPI_Status *$"),

	// handles
	"comm":    handle("MPI_Comm", "comm"),
	"type":    handle("MPI_Datatype", "type"),
	"op":      handle("MPI_Op", "op"),
	"request": handle("MPI_Request", "request"),
	"message": handle("MPI_Message", "message"),
	"win":     handle("MPI_Win", "win"),
	"file":    handle("MPI_File", "file"),
	"ocomm": {ctype: "MPI_Comm *$", before: "ckpt_vid v_$ = CKPT_VID_NONE;", in: "(long)&v_$", after: "*$ = out_comm(v_$);",
		backBefore: "MPI_Comm c_%d = MPI_COMM_NULL;", arg: "&c_%d",
		backAfter: "return back_new_comm(c_%d, c_%d, OWNER, 0, (ckpt_vid *)$);", written: true},
	"otype":     handleOut("MPI_Datatype", "type"),
	"oop":       handleOut("MPI_Op", "op"),
	"omessage":  handleOut("MPI_Message", "message"),
	"owin":      handleOut("MPI_Win", "win"),
	"ofile":     handleOut("MPI_File", "file"),
	"iocomm":    handleInOut("MPI_Comm", "comm"),
	"iotype":    handleInOut("MPI_Datatype", "type"),
	"ioop":      handleInOut("MPI_Op", "op"),
	"iorequest": handleInOut("MPI_Request", "request"),
	"iomessage": handleInOut("MPI_Message", "message"),
	"iowin":     handleInOut("MPI_Win", "win"),
	"iofile":    handleInOut("MPI_File", "file"),
	"orequest": {ctype: "MPI_Request *$", before: "ckpt_vid v_$ = CKPT_VID_NONE;", in: "(long)&v_$",
		after:      "*$ = out_request(v_$);",
		backBefore: "MPI_Request r_%d = MPI_REQUEST_NULL;", arg: "&r_%d",
		backAfter: "return back_new_request(r_%d, REQUEST_OTHER, 0, OWNER, (ckpt_vid *)$);", written: true},
	// Infos and groups live in the front; what crosses is their content (capi/canon/mpi_canon.h).
	"info": {ctype: "MPI_Info $", in: "(long)in_info($)",
		backBefore: "MPI_Info i_%d = back_info((const char *)$);", arg: "i_%d",
		backFinally: "back_info_done(&i_%d);"},
	"session":  frontOnly("MPI_Session $"),
	"osession": frontOnly("MPI_Session *$"),
	"group": {ctype: "MPI_Group $", in: "(long)in_group($)",
		backBefore: "MPI_Group g_%d = back_group((const ckpt_mpi_group *)$);", arg: "g_%d",
		backFinally: "back_group_done(&g_%d);"},
	"errh":      frontOnly("MPI_Errhandler $"),
	"oerrh":     frontOnly("MPI_Errhandler *$"),
	"ioerrh":    frontOnly("MPI_Errhandler *$"),
	"oinfo":     frontOnly("MPI_Info *$"),
	"ioinfo":    frontOnly("MPI_Info *$"),
	"ogroup":    frontOnly("MPI_Group *$"),
	"iogroup":   frontOnly("MPI_Group *$"),
	"infos":     frontOnly("const MPI_Info *$"),
	"types":     frontOnly("const MPI_Datatype *$"),
	"otypes":    frontOnly("MPI_Datatype *$"),
	"crequests": frontOnly("const MPI_Request *$"),
	"requests":  frontOnly("MPI_Request *$"),

	// words that are no parameters: contents of infos, a name that is published, members of a group, where
	// the parts of a window begin, where an address goes
	"contents": {}, "name": {}, "oname": {}, "members": {}, "starts": {}, "vptrp": {},

	// functions of the application
	"fn":         frontOnly("void *$"),
	"userfn":     frontOnly("MPI_User_function *$"),
	"commehfn":   frontOnly("MPI_Comm_errhandler_function *$"),
	"winehfn":    frontOnly("MPI_Win_errhandler_function *$"),
	"fileehfn":   frontOnly("MPI_File_errhandler_function *$"),
	"commcopyfn": frontOnly("MPI_Comm_copy_attr_function *$"),
	"commdelfn":  frontOnly("MPI_Comm_delete_attr_function *$"),
	"typecopyfn": frontOnly("MPI_Type_copy_attr_function *$"),
	"typedelfn":  frontOnly("MPI_Type_delete_attr_function *$"),
	"wincopyfn":  frontOnly("MPI_Win_copy_attr_function *$"),
	"windelfn":   frontOnly("MPI_Win_delete_attr_function *$"),
}

// declare writes a parameter's declaration.
func declare(p param) string { return strings.ReplaceAll(kinds[p.kind].ctype, "$", p.name) }
