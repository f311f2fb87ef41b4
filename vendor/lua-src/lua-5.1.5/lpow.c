/* origin: FreeBSD /usr/src/lib/msun/src/e_pow.c */
/*
 * ====================================================
 * Copyright (C) 2004 by Sun Microsystems, Inc. All rights reserved.
 *
 * Permission to use, copy, modify, and distribute this
 * software is freely granted, provided that this notice
 * is preserved.
 * ====================================================
 */
/*
** x to the power of y, with the same bits on every machine: it uses only
** operations whose results IEEE 754 determines.
*/

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double bp[2] = {1.0, 1.5};
static const double dp_h[2] = {0.0, 5.84962487220764160156e-01};
static const double dp_l[2] = {0.0, 1.35003920212974897128e-08};
static const double two53 = 9007199254740992.0;
static const double huge = 1.0e300;
static const double tiny = 1.0e-300;
static const double L1 = 5.99999999999994648725e-01;
static const double L2 = 4.28571428578550184252e-01;
static const double L3 = 3.33333329818377432918e-01;
static const double L4 = 2.72728123808534006489e-01;
static const double L5 = 2.30660745775561754067e-01;
static const double L6 = 2.06975017800338417784e-01;
static const double P1 = 1.66666666666666019037e-01;
static const double P2 = -2.77777777770155933842e-03;
static const double P3 = 6.61375632143793436117e-05;
static const double P4 = -1.65339022054652515390e-06;
static const double P5 = 4.13813679705723846039e-08;
static const double lg2 = 6.93147180559945286227e-01;
static const double lg2_h = 6.93147182464599609375e-01;
static const double lg2_l = -1.90465429995776804525e-09;
static const double ovt = 8.0085662595372944372e-017;
static const double cp = 9.61796693925975554329e-01;
static const double cp_h = 9.61796700954437255859e-01;
static const double cp_l = -7.02846165095275826516e-09;
static const double ivln2 = 1.44269504088896338700e+00;
static const double ivln2_h = 1.44269502162933349609e+00;
static const double ivln2_l = 1.92596299112661746887e-08;

static uint64_t bits (double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
static double number (uint64_t b) { double x; memcpy(&x, &b, 8); return x; }
static double zero_low (double x) { return number(bits(x) & 0xffffffff00000000u); }
static double set_high (double x, uint32_t high) {
  return number((bits(x) & 0xffffffffu) | ((uint64_t)high << 32));
}

double lua_pow (double x, double y) {
  double t1, t2, ax, s, y1, p_l, p_h, z, t, u, v, w, r;
  int32_t hx = (int32_t)(bits(x) >> 32), hy = (int32_t)(bits(y) >> 32);
  uint32_t lx = (uint32_t)bits(x), ly = (uint32_t)bits(y);
  int32_t ix = hx & 0x7fffffff, iy = hy & 0x7fffffff;
  int32_t yisint = 0, k, j, i, n;
  if (((uint32_t)iy | ly) == 0) return 1.0;
  if (hx == 0x3ff00000 && lx == 0) return 1.0;
  if (ix > 0x7ff00000 || (ix == 0x7ff00000 && lx != 0) ||
      iy > 0x7ff00000 || (iy == 0x7ff00000 && ly != 0))
    return x + y;
  if (hx < 0) {
    if (iy >= 0x43400000) yisint = 2;
    else if (iy >= 0x3ff00000) {
      k = (iy >> 20) - 0x3ff;
      if (k > 20) {
        uint32_t m = ly >> (52 - k);
        if ((m << (52 - k)) == ly) yisint = 2 - (int32_t)(m & 1);
      }
      else if (ly == 0) {
        uint32_t m = (uint32_t)iy >> (20 - k);
        if ((m << (20 - k)) == (uint32_t)iy) yisint = 2 - (int32_t)(m & 1);
      }
    }
  }
  if (ly == 0) {
    if (iy == 0x7ff00000) {
      if (((uint32_t)(ix - 0x3ff00000) | lx) == 0) return 1.0;
      else if (ix >= 0x3ff00000) return hy >= 0 ? y : 0.0;
      else return hy >= 0 ? 0.0 : -y;
    }
    if (iy == 0x3ff00000) return hy >= 0 ? x : 1.0 / x;
    if (hy == 0x40000000) return x * x;
    if (hy == 0x3fe00000 && hx >= 0) return sqrt(x);
  }
  ax = fabs(x);
  if (lx == 0 && (ix == 0x7ff00000 || ix == 0 || ix == 0x3ff00000)) {
    z = ax;
    if (hy < 0) z = 1.0 / z;
    if (hx < 0) {
      if (((ix - 0x3ff00000) | yisint) == 0) z = (z - z) / (z - z);
      else if (yisint == 1) z = -z;
    }
    return z;
  }
  s = 1.0;
  if (hx < 0) {
    if (yisint == 0) return (x - x) / (x - x);
    if (yisint == 1) s = -1.0;
  }
  if (iy > 0x41e00000) {
    if (iy > 0x43f00000) {
      if (ix <= 0x3fefffff) return hy < 0 ? huge * huge : tiny * tiny;
      if (ix >= 0x3ff00000) return hy > 0 ? huge * huge : tiny * tiny;
    }
    if (ix < 0x3fefffff) return hy < 0 ? s * huge * huge : s * tiny * tiny;
    if (ix > 0x3ff00000) return hy > 0 ? s * huge * huge : s * tiny * tiny;
    t = ax - 1.0;
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25));
    u = ivln2_h * t;
    v = t * ivln2_l - w * ivln2;
    t1 = zero_low(u + v);
    t2 = v - (t1 - u);
  }
  else {
    double ss, s2, s_h, s_l, t_h, t_l, z_h, z_l;
    n = 0;
    if (ix < 0x00100000) {
      ax *= two53;
      n -= 53;
      ix = (int32_t)(bits(ax) >> 32);
    }
    n += (ix >> 20) - 0x3ff;
    j = ix & 0x000fffff;
    ix = j | 0x3ff00000;
    if (j <= 0x3988E) k = 0;
    else if (j < 0xBB67A) k = 1;
    else {
      k = 0;
      n += 1;
      ix -= 0x00100000;
    }
    ax = set_high(ax, (uint32_t)ix);
    u = ax - bp[k];
    v = 1.0 / (ax + bp[k]);
    ss = u * v;
    s_h = zero_low(ss);
    t_h = set_high(0.0, (((uint32_t)ix >> 1) | 0x20000000) + 0x00080000 + ((uint32_t)k << 18));
    t_l = ax - (t_h - bp[k]);
    s_l = v * ((u - s_h * t_h) - s_h * t_l);
    s2 = ss * ss;
    r = s2 * s2 * (L1 + s2 * (L2 + s2 * (L3 + s2 * (L4 + s2 * (L5 + s2 * L6)))));
    r += s_l * (s_h + ss);
    s2 = s_h * s_h;
    t_h = zero_low(3.0 + s2 + r);
    t_l = r - ((t_h - 3.0) - s2);
    u = s_h * t_h;
    v = s_l * t_h + t_l * ss;
    p_h = zero_low(u + v);
    p_l = v - (p_h - u);
    z_h = cp_h * p_h;
    z_l = cp_l * p_h + p_l * cp + dp_l[k];
    t = (double)n;
    t1 = zero_low(((z_h + z_l) + dp_h[k]) + t);
    t2 = z_l - (((t1 - t) - dp_h[k]) - z_h);
  }
  y1 = zero_low(y);
  p_l = (y - y1) * t1 + y * t2;
  p_h = y1 * t1;
  z = p_l + p_h;
  j = (int32_t)(bits(z) >> 32);
  i = (int32_t)bits(z);
  if (j >= 0x40900000) {
    if (((j - 0x40900000) | i) != 0) return s * huge * huge;
    if (p_l + ovt > z - p_h) return s * huge * huge;
  }
  else if ((j & 0x7fffffff) >= 0x4090cc00) {
    if ((((uint32_t)j - 0xc090cc00u) | (uint32_t)i) != 0) return s * tiny * tiny;
    if (p_l <= z - p_h) return s * tiny * tiny;
  }
  i = j & 0x7fffffff;
  k = (i >> 20) - 0x3ff;
  n = 0;
  if (i > 0x3fe00000) {
    n = j + (0x00100000 >> (k + 1));
    k = ((n & 0x7fffffff) >> 20) - 0x3ff;
    t = set_high(0.0, (uint32_t)(n & ~(0x000fffff >> k)));
    n = ((n & 0x000fffff) | 0x00100000) >> (20 - k);
    if (j < 0) n = -n;
    p_h -= t;
  }
  t = zero_low(p_l + p_h);
  u = t * lg2_h;
  v = (p_l - (t - p_h)) * lg2 + t * lg2_l;
  z = u + v;
  w = v - (z - u);
  t = z * z;
  t1 = z - t * (P1 + t * (P2 + t * (P3 + t * (P4 + t * P5))));
  r = (z * t1) / (t1 - 2.0) - (w + z * w);
  z = 1.0 - (r - z);
  j = (int32_t)(bits(z) >> 32) + (int32_t)((uint32_t)n << 20);
  if ((j >> 20) <= 0) z = ldexp(z, n);
  else z = set_high(z, (uint32_t)j);
  return s * z;
}
