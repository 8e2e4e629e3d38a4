%% SPDX-License-Identifier: Apache-2.0
%%
%% Erlang: processes on a scheduler for each processor.
-module(work).
-export([main/1]).

main([Rounds]) -> step(0, list_to_integer(Rounds), 0).

step(20, _, _) -> init:stop();
step(Step, Rounds, Sum) ->
    Next = rounds(Step * Rounds, (Step + 1) * Rounds, Sum),
    io:format("~p ~p~n", [Step, Next]),
    step(Step + 1, Rounds, Next).

rounds(End, End, Sum) -> Sum;
rounds(Round, End, Sum) ->
    Self = self(),
    [spawn(fun() -> Self ! {K, chain(Round * 4 + K, 2000, 0)} end) || K <- [1, 2, 3, 4]],
    Parts = [receive {K, Part} -> Part end || K <- [1, 2, 3, 4]],
    rounds(Round + 1, End, lists:foldl(fun(X, Y) -> X bxor Y end, Sum, Parts)).

chain(_, 0, Sum) -> Sum;
chain(X, I, Sum) -> chain((X * 48271 + I) rem 2147483647, I - 1, (Sum + erlang:phash2({X, I})) band 16#ffffffff).
