(* SPDX-License-Identifier: Apache-2.0 *)
let () =
  let rounds = int_of_string Sys.argv.(1) and sum = ref 0 in
  for step = 0 to 19 do
    for round = 1 to rounds do
      let x = ref ((step * rounds) + round) in
      for i = 0 to 3000 do
        x := ((!x * 48271) + i) mod 2147483647;
        sum := (!sum + !x + String.length (string_of_int !x)) mod 1000003
      done
    done;
    Printf.printf "%d %d\n%!" step !sum
  done
