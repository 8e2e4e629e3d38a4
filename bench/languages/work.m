% SPDX-License-Identifier: Apache-2.0
%
% Octave: matrices, by whatever BLAS there is.
rounds = str2num(argv(){end});
rand("twister", 5);
total = 0;
for step = 1:20
  for round = 1:rounds
    a = rand(120);
    [q, t] = qr(a * a');
    total += sum(abs(diag(t)));
  end
  printf("%d %.12g\n", step, total);
  fflush(stdout);
end
