% SPDX-License-Identifier: Apache-2.0
%
% SWI-Prolog.
:- initialization(main, main).

main([Text]) :- atom_number(Text, Rounds), steps(0, Rounds, 0).

steps(20, _, _) :- !.
steps(Step, Rounds, Sum) :-
    Calls is Rounds * 5000,
    First is Step + 1,
    chain(First, Calls, Sum, Next),
    format("~w ~w~n", [Step, Next]),
    flush_output,
    More is Step + 1,
    steps(More, Rounds, Next).

chain(_, 0, Sum, Sum) :- !.
chain(X, I, Sum, End) :-
    Y is (X * 48271 + I) mod 2147483647,
    Next is (Sum + Y) mod 1000003,
    J is I - 1,
    chain(Y, J, Next, End).
